"""What one node's credential may take of the server: few subscriptions, and messages that an agent needs."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client

from bus import connection, stream
from bus.publishing.bounds import HEADER_BYTES
from schemas import codec
from schemas.messages.telemetry import MAXIMUM_PODS, PodUsageBlock
from spazio.credentials import claims
from tests.e2e.kubernetes.watch.watching import until
from tests.support.server.secured import NAMES, Secured, attacker, secured


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Secured]:
    with secured(tmp_path) as made:
        yield made


def usage_of(pods: int) -> bytes:
    """Return the usage of so many pods with names of usual length and numbers of full length."""
    cores, memory, share = 12.345678, 12_345_678_901.0, 0.123456
    columns: dict[str, list[object]] = {
        "namespaces": ["team-payments-production"], "names": ["checkout-service-worker-7c9d8f6b5d-x2x7k"],
        "workloads": ["team-payments-production/checkout-service-worker"], "containers": [3], "cpu_cores": [cores],
        "memory_bytes": [memory], "cpu_pressure": [share], "memory_pressure": [share], "io_pressure": [share],
        "throttled": [share], "ages": [600],
    }  # fmt: skip
    return codec.encode(
        PodUsageBlock.model_validate(
            {
                "node": "ip-10-0-0-7.eu-west-1.compute.internal", "boot": str(uuid.uuid4()), "seq": 10**6,
                "at_us": 18 * 10**14, "span_us": 1_000_000, "pods": [str(uuid.uuid4()) for _ in range(pods)],
                **{name: value * pods for name, value in columns.items()},
            }
        )
    )  # fmt: skip


def test_the_usage_of_the_most_pods_that_an_agent_reports_fits_and_that_of_usual_nodes_stays_far_below() -> None:
    limit = claims.NODE.payload_bytes - HEADER_BYTES
    assert len(usage_of(MAXIMUM_PODS)) <= limit
    assert len(usage_of(200)) < limit / 8


async def test_a_node_publishes_large_messages_up_to_its_limit_and_the_server_ends_who_sends_larger_ones(
    running: Secured,
) -> None:
    settings = running.settings("process")
    async with connection.connect(settings, "process") as processors:
        await stream.ensure(processors, settings)
        thief = await attacker(running, "n1", "_INBOX_node.n1")
        await thief.client.jetstream().publish("spazio.pods.n1", bytes(claims.NODE.payload_bytes), timeout=5)
        await thief.client.publish("spazio.pods.n1", bytes(claims.NODE.payload_bytes + 1))

        async def ended() -> bool:
            return "maximum payload exceeded" in running.log.lower()  # the client may have lost its connection by then

        await until(ended, 5, lambda: running.log[-2000:])
        await thief.client.close()
        assert (await stream.describe(processors, NAMES.telemetry)).last == 1


async def test_an_agent_s_client_knows_the_limit_so_that_it_withholds_what_is_larger(running: Secured) -> None:
    async with connection.connect(running.settings("n1"), "agent") as client:
        assert client.max_payload == claims.NODE.payload_bytes
    async with connection.connect(running.settings("process"), "process") as client:
        assert client.max_payload == 1 << 20


async def subscribe(client: Client, times: int) -> None:
    for _ in range(times):
        await client.subscribe(NAMES.model)
        await client.flush(timeout=2)


@pytest.mark.slow
async def test_a_node_cannot_open_subscriptions_without_end(running: Secured) -> None:
    thief = await attacker(running, "n1", "_INBOX_node.n1")
    await subscribe(thief.client, claims.NODE.subscriptions)
    assert "maximum subscriptions exceeded" not in running.log
    await thief.client.subscribe(NAMES.model)

    async def refused() -> bool:
        return "maximum subscriptions exceeded" in running.log

    await until(refused, 5, lambda: running.log[-2000:])
    await thief.client.close()


def test_a_credential_that_was_issued_without_limits_is_issued_again_with_them(running: Secured) -> None:
    file = running.folder / "nodes" / "n1.creds"

    def limits() -> tuple[int, int]:
        own = claims.read(file.read_text().splitlines()[1])["nats"]
        return own["subs"], own["payload"]

    lines = file.read_text().splitlines()
    key = claims.key_of(next(line for line in lines if line.startswith("SU")))
    issuer = claims.key_of((running.folder / "nodes.nk").read_text().strip())
    body = claims.read(lines[1])["nats"] | {"subs": -1, "payload": -1}
    file.write_text(claims.credential(claims.sign(issuer, key.public, "node n1", body, 1), key.seed))
    assert limits() == (-1, -1)
    running.issue()
    assert limits() == claims.NODE
