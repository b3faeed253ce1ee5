"""All subjects of the contract and of the server's API, for tests of who may use them."""

import re
from pathlib import Path

from bus import connection, server, stream
from schemas import channel, request
from schemas.channel import CHANNELS
from tests.support.server.secured import NAMES, Secured

STREAMS = [request.stored_name(store, NAMES) for store in (*channel.stores(), request.CHECKPOINTS)]


def contract(node: str) -> list[str]:
    """Return every subject and key of the contract, with a node's name where there is one."""
    addresses = [row.address(NAMES) for row in CHANNELS]
    return [
        address.format(
            node=node, partition=0, fold=0, namespace="n", workload="w", pod="p", uid="u", replica="r", subject="a.b"
        )
        for address in addresses
    ]


async def _create(running: Secured) -> None:
    settings = running.settings("process")
    async with connection.connect(settings, "setup") as client:
        await stream.ensure(client, settings)


_ON_STREAMS = (
    *("STREAM.CREATE", "STREAM.UPDATE", "STREAM.INFO", "STREAM.DELETE", "STREAM.PURGE", "STREAM.MSG.GET"),
    *("STREAM.MSG.DELETE", "STREAM.SNAPSHOT", "STREAM.RESTORE", "STREAM.LEADER.STEPDOWN", "STREAM.PEER.REMOVE"),
    *("STREAM.PEER.EVACUATE", "STREAM.CANCEL"),
    *("CONSUMER.CREATE", "CONSUMER.NAMES", "CONSUMER.LIST", "DIRECT.GET"),
)
_ON_CONSUMERS = (
    *("CONSUMER.CREATE", "CONSUMER.DURABLE.CREATE", "CONSUMER.INFO", "CONSUMER.DELETE", "CONSUMER.PAUSE"),
    *("CONSUMER.RESET", "CONSUMER.UNPIN", "CONSUMER.LEADER.STEPDOWN", "CONSUMER.MSG.NEXT"),
    *("CONSUMER.PEER.REMOVE", "CONSUMER.PEER.EVACUATE"),
)
API = [
    *(f"$JS.API.{verb}" for verb in ("INFO", "STREAM.NAMES", "STREAM.LIST", "META.LEADER.STEPDOWN", "SERVER.REMOVE")),
    *(f"$JS.API.{verb}" for verb in ("META.RESCUE", "SERVER.EVACUATE", "STREAM.CANCEL")),
    *("$JS.API.ACCOUNT.INFO", "$JS.API.ACCOUNT.PURGE.A", "$JS.API.ACCOUNT.STREAM.MOVE.A.S"),
    *("$JS.API.ACCOUNT.STREAM.CANCEL", "$JS.API.ACCOUNT.STREAM.CANCEL.A.S"),
    *(f"$JS.API.{verb}.{name}" for verb in _ON_STREAMS for name in STREAMS),
    *(f"$JS.API.{verb}.{name}.c" for verb in _ON_CONSUMERS for name in STREAMS),
    *(f"$JS.API.CONSUMER.CREATE.{name}.c.spazio.samples.n1" for name in STREAMS),
    *(f"$JS.API.DIRECT.GET.{name}.spazio.samples.n1" for name in STREAMS),
    *("$JS.ACK.SPAZIO_TELEMETRY.c.1.1.1.1.1", "$JS.FC.SPAZIO_TELEMETRY.c.x", "$JSC.R.x", "$JS.M.x"),
]


def requests_of_the_server() -> list[str]:
    """Return the subjects below `$JS.API` that the server's program holds as texts, with `*` or `>` where they have it.

    Go keeps texts without an end between them, so letters of the next one may follow.
    """
    program = Path(server.find().path).read_bytes()
    requests = {text.decode() for text in re.findall(rb"\$JS\.API\.([A-Z.]{2,}(?:[*>][A-Z.*>]*)?)", program)}
    return sorted(requests)


def is_of(request: str, text: str) -> bool:
    """Tell whether a request is one of those that a text of the program names, or begins as it does."""
    begin = re.split(r"[*>]", text)[0].removesuffix(".")
    return f"{request}.".startswith(f"{begin}.") or re.fullmatch(re.escape(request) + "[A-Z]*", begin) is not None
