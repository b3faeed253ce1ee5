"""All subjects of the contract and of the server's API, for tests of who may use them."""

from bus import connection, stream
from schemas import channel, request
from schemas.channel import CHANNELS
from tests.support.server.secured import NAMES, Secured

STREAMS = [request.stored_name(store, NAMES) for store in (*channel.stores(), request.CHECKPOINTS)]


def contract(node: str) -> list[str]:
    """Return every subject and key of the contract, with a node's name where there is one."""
    addresses = [row.address(NAMES) for row in CHANNELS]
    return [
        address.format(
            node=node, partition=0, namespace="n", workload="w", pod="p", uid="u", replica="r", subject="a.b"
        )
        for address in addresses
    ]


async def _create(running: Secured) -> None:
    settings = running.settings("process")
    async with connection.connect(settings, "setup") as client:
        await stream.ensure(client, settings)
