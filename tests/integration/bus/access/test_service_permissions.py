"""Each service may do on a real server what it is there to do."""

import asyncio
import contextlib
import json

import nats.errors
import nats.js.errors
import pytest
from nats.js import api

from bus import connection, stream
from bus.accounting import exchange
from bus.connection import Connection
from bus.folding import checkpoint, journal, worker_pool
from bus.folding.checkpoint import Checkpoint
from bus.publishing import batch
from bus.publishing.batch import Row
from bus.publishing.pipeline import Outgoing, Pipeline
from bus.reading.lease import Lease
from bus.reading.leased import LeasedReader
from bus.reading.reader import Reader
from schemas import request, role
from schemas.subject import description
from tests.integration.bus.access.contract import STREAMS
from tests.support.server.secured import NAMES, Secured, attacker


async def test_processors_fold_publish_lease_checkpoint_and_report(running: Secured) -> None:
    settings = running.settings("process")
    async with connection.connect(settings, "process") as client, connection.connect(settings, "other") as asking:
        source = await stream.describe(client, NAMES.telemetry)
        rows = journal.Batches(client, NAMES.estimates, "spazio.cursor.7", timeout_seconds=1)
        await rows.covered(source)
        await rows.commit([Row("spazio.availability.n1", b"{}")], source, 1)
        single = journal.Singles(client, NAMES.telemetry, NAMES.model, timeout_seconds=1)
        await single.covered(source)
        await single.commit([Row(NAMES.model, b"{}")], source, 1)
        store = checkpoint.Store(client, NAMES.checkpoints, timeout_seconds=1)
        for _ in range(2):
            await store.save("7", Checkpoint(source.identity, 1, b"state"))
        assert (await store.load("7", source.identity) or Checkpoint("", 0, b"")).body == b"state"

        async def covered() -> int:
            return 0

        await client.jetstream().publish("spazio.subspace", b"{}")
        lease = Lease(
            *(client, NAMES.telemetry, "lease", ["spazio.subspace"]),
            failover_seconds=5,
            timeout_seconds=1,
            covered=covered,
        )
        async with lease:
            await asyncio.wait_for(lease.acquire(), 5)
            async with LeasedReader(client, lease) as reader:
                assert await reader.read(timeout_seconds=2)
        pool = worker_pool.WorkerPool(client, "spazio", [], lambda _: {})
        service = await pool._announced()
        assert [each.identity for each in await worker_pool.replicas(asking, "spazio")] == [service.id]
        await service.stop()


async def test_the_watch_writes_its_own_checkpoints_and_none_of_the_processors(running: Secured) -> None:
    async with (
        connection.connect(running.settings("process"), "process") as client,
        connection.connect(running.settings("watch"), "watch") as watch,
    ):
        processors, store = (checkpoint.Store(each, NAMES.checkpoints, timeout_seconds=1) for each in (client, watch))
        await processors.save("7", Checkpoint("s", 1, b"state"))
        for sequence in (1, 2, 3):
            await store.save("watch", Checkpoint("s", sequence, b"facts"))
        assert await store.load("watch", "s") == Checkpoint("s", 3, b"facts")
        with pytest.raises(nats.errors.Error, match="may not"):
            await store.save("7", Checkpoint("s", 2, b"made up"))
        thief = await attacker(running, "watch")
        forged = [description(NAMES.checkpoints, "7.0"), f"$O.{NAMES.checkpoints}.C.7.0.x"]
        assert await thief.publish(forged, b"{}") == {each.lower() for each in forged}
        await thief.client.close()
        assert await processors.load("7", "s") == Checkpoint("s", 1, b"state")


@pytest.mark.parametrize("push", [False, True])
async def test_a_stranger_s_consumer_with_the_name_of_a_lease_is_replaced(
    running: Secured, admin: Connection, caplog: pytest.LogCaptureFixture, *, push: bool
) -> None:
    """The server takes a name in the request's body, so who may use that subject, as programs of one machine, can."""
    name = f"taken-{push}"
    config = api.ConsumerConfig(
        name=name,
        ack_policy=api.AckPolicy.EXPLICIT,
        deliver_subject="_INBOX_admin.nobody" if push else None,
    )
    body = json.dumps({"stream_name": NAMES.telemetry, "config": config.as_dict()}).encode()
    thief = await attacker(running, "local", "_INBOX_reader")
    answer = await thief.client.request(f"$JS.API.CONSUMER.CREATE.{NAMES.telemetry}", body, timeout=2)
    made = json.loads(answer.data)
    assert made["name"] == name
    await thief.client.close()

    async def covered() -> int:
        return 0

    await admin.jetstream().publish("spazio.subspace", b"{}")
    async with connection.connect(running.settings("process"), "process") as client:
        lease = Lease(
            *(client, NAMES.telemetry, name, ["spazio.subspace"]),
            failover_seconds=5,
            timeout_seconds=1,
            covered=covered,
        )
        async with lease:
            await asyncio.wait_for(lease.acquire(), 5)
            assert lease.held
    assert "lease.replaced" in [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("name", ["reader", "local"])
async def test_readers_see_which_processor_does_what(running: Secured, name: str) -> None:
    async with (
        connection.connect(running.settings("process"), "process") as client,
        connection.connect(running.settings(name), "reader") as reader,
    ):
        service = await worker_pool.WorkerPool(client, "spazio", [], lambda _: {})._announced()
        assert [each.identity for each in await worker_pool.replicas(reader, "spazio")] == [service.id]
        await service.stop()


_READS = {
    "cache": ["SPAZIO_ESTIMATES", "KV_SPAZIO_AVAILABILITY"],
    "history": ["SPAZIO_TELEMETRY", "SPAZIO_ESTIMATES", "SPAZIO_EVENTS"],
    "metrics": ["SPAZIO_ESTIMATES"],
    "kubernetes": ["SPAZIO_ESTIMATES"],
    "extender": [name for name in STREAMS if name not in ("SPAZIO_EVENTS", "SPAZIO_DEAD", "OBJ_SPAZIO_CHECKPOINTS")],
    "watch": ["SPAZIO_TELEMETRY", "KV_SPAZIO_NODES", "KV_SPAZIO_PODS"],
    "load": ["SPAZIO_TELEMETRY", "KV_SPAZIO_NODES", "KV_SPAZIO_PODS"],
    "dashboard": STREAMS,
    "reader": STREAMS,
    "local": STREAMS,
    "admin": STREAMS,
}


@pytest.mark.parametrize("name", _READS)
async def test_each_role_reads_the_streams_that_its_service_reads(running: Secured, name: str) -> None:
    settings = running.settings(name)
    async with connection.connect(settings, name) as client:
        await stream.ensure(client, settings)
        for kept in _READS[name]:
            async with Reader(client, kept, [">"], timeout_seconds=1) as reader:
                await reader.read(timeout_seconds=0.05)
                await reader.whole()
            await batch.last(client, kept, "spazio.nothing", 1)
            await stream.newest(client, kept, "spazio.nothing", 1)
        assert client.denials.newest() == ""


async def test_each_service_writes_what_it_is_there_to_write(running: Secured, admin: Connection) -> None:
    written = {
        "cache": ("$KV.SPAZIO_AVAILABILITY.n1", "spazio.cache.cursor", "spazio.dead.spazio.x"),
        "history": ("spazio.market", "spazio.dead.spazio.x"),
        "metrics": ("spazio.dead.spazio.x",),
        "kubernetes": ("spazio.dead.spazio.x",),
        "extender": (
            *("$KV.SPAZIO_RESERVATIONS.n1", "spazio.decision.n.p", "spazio.shortage.r", "spazio.trust.r"),
            "spazio.dead.spazio.x",
        ),
        "watch": ("spazio.nodefacts.n1", "spazio.podfacts.-", "$KV.SPAZIO_NODES.n1", "$KV.SPAZIO_PODS.u"),
        "local": ("spazio.samples.n9",),
        "region": ("spazio.edge.n9",),
    }
    for name, subjects in written.items():
        async with connection.connect(running.settings(name), name) as client:
            for subject in subjects:
                assert (await client.jetstream().publish(subject, b"{}", timeout=5)).seq
    async with connection.connect(running.settings("load"), "load") as client:
        pipeline = Pipeline(client, limit=10, timeout_seconds=1)
        async with asyncio.TaskGroup() as group, pipeline:
            sending = group.create_task(pipeline.run())
            await pipeline.send([Outgoing(b"spazio.samples.n5", b"{}", b"a"), Outgoing(b"spazio.pods.n5", b"{}", b"b")])
            assert await pipeline.drain(2)
            sending.cancel()


@pytest.mark.parametrize("name", ["reader", "local"])
async def test_the_library_s_own_calls_read_everything_with_a_reader_s_credential(
    running: Secured, admin: Connection, name: str
) -> None:
    await admin.jetstream().publish("$KV.SPAZIO_NODES.n1", b"{}")
    await admin.jetstream().publish("spazio.samples.n1", b"{}")
    thief = await attacker(running, name)
    js = thief.client.jetstream()
    bucket = await js.key_value("SPAZIO_NODES")
    keys: list[str] = []
    while not keys:  # the library takes a row that is on its way for none
        with contextlib.suppress(nats.js.errors.NoKeysError):
            keys = await bucket.keys()
    assert "n1" in keys
    assert (await bucket.get("n1")).value == b"{}"
    if name == "local":
        pulling = await js.pull_subscribe("spazio.part.*.samples.*", stream="SPAZIO_TELEMETRY")
    else:  # a consumer with another name could replace that of a lease
        config = api.ConsumerConfig(
            name=request.slots(name)[3], filter_subject="spazio.part.*.samples.*", ack_policy=api.AckPolicy.NONE
        )
        made = await js.add_consumer("SPAZIO_TELEMETRY", config)
        pulling = await js.pull_subscribe_bind(made.name, stream="SPAZIO_TELEMETRY")
    assert (await pulling.fetch(1, timeout=5))[0].data
    assert await thief.refusals() == set()
    await thief.client.close()


async def test_an_admin_may_purge_and_delete(admin: Connection) -> None:
    await admin.jetstream().add_stream(api.StreamConfig(name="OWN", subjects=["own.>"]))
    await admin.jetstream().publish("own.x", b"")
    assert await admin.jetstream().purge_stream("OWN")
    assert await admin.jetstream().delete_stream("OWN")


@pytest.mark.parametrize("asking", ["admin", "reader", "local", "dashboard"])
async def test_services_give_account_to_who_reads_everything(running: Secured, asking: str) -> None:
    asked = {*_READS, "process"} - {"reader", "local", asking}
    async with contextlib.AsyncExitStack() as stack:
        for name in asked:
            client = await stack.enter_async_context(connection.connect(running.settings(name), name))
            await exchange.serve(client, NAMES.of(role.FLOW), name)
            await client.flush()
            assert client.denials.newest() == ""
        asker = await stack.enter_async_context(connection.connect(running.settings(asking), asking))
        answered = await exchange.ask(asker, NAMES.of(role.FLOW), wait_seconds=0.3)
    assert sorted(report.service for report in answered) == sorted(asked)
