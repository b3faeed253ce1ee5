"""What each role may do on a real server and what not, tried with the library's client, which checks nothing."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import nats.errors
import nats.js.errors
import pytest
from nats import micro
from nats.js import api

from bus import connection, stream
from bus.access.credential import Denied
from bus.accounting import exchange
from bus.connection import Connection
from bus.folding import checkpoint, journal, worker_pool
from bus.folding.checkpoint import Checkpoint
from bus.publishing import batch
from bus.publishing.batch import Row
from bus.publishing.pipeline import Outgoing, Pipeline
from bus.reading import setback
from bus.reading.lease import Lease
from bus.reading.leased import LeasedReader
from bus.reading.reader import Reader
from schemas import channel, request, role
from schemas.channel import AGENT_KINDS, CHANNELS
from schemas.subject import matches
from tests.support.raw import reached
from tests.support.secured import NAMES, Attacker, Secured, attacker, secured

ROLES = {each.name: each for each in role.ROLES}
EACH = ROLES | {role.LOCAL: role.LOCAL_ROLE}
STREAMS = [request.stored_name(store, NAMES) for store in (*channel.stores(), request.CHECKPOINTS)]

_ON_STREAMS = (
    *("STREAM.CREATE", "STREAM.UPDATE", "STREAM.INFO", "STREAM.DELETE", "STREAM.PURGE", "STREAM.MSG.GET"),
    *("STREAM.MSG.DELETE", "STREAM.SNAPSHOT", "STREAM.RESTORE", "STREAM.LEADER.STEPDOWN", "STREAM.PEER.REMOVE"),
    *("CONSUMER.CREATE", "CONSUMER.NAMES", "CONSUMER.LIST", "DIRECT.GET"),
)
_ON_CONSUMERS = (
    *("CONSUMER.CREATE", "CONSUMER.DURABLE.CREATE", "CONSUMER.INFO", "CONSUMER.DELETE", "CONSUMER.PAUSE"),
    *("CONSUMER.RESET", "CONSUMER.UNPIN", "CONSUMER.LEADER.STEPDOWN", "CONSUMER.MSG.NEXT"),
)
API = [
    *(f"$JS.API.{verb}" for verb in ("INFO", "STREAM.NAMES", "STREAM.LIST", "META.LEADER.STEPDOWN", "SERVER.REMOVE")),
    *("$JS.API.ACCOUNT.INFO", "$JS.API.ACCOUNT.PURGE.A", "$JS.API.ACCOUNT.STREAM.MOVE.A.S"),
    *(f"$JS.API.{verb}.{name}" for verb in _ON_STREAMS for name in STREAMS),
    *(f"$JS.API.{verb}.{name}.c" for verb in _ON_CONSUMERS for name in STREAMS),
    *(f"$JS.API.CONSUMER.CREATE.{name}.c.spazio.samples.n1" for name in STREAMS),
    *(f"$JS.API.DIRECT.GET.{name}.spazio.samples.n1" for name in STREAMS),
    *("$JS.ACK.SPAZIO_TELEMETRY.c.1.1.1.1.1", "$JS.FC.SPAZIO_TELEMETRY.c.x", "$JSC.R.x", "$JS.M.x"),
]
OTHERS = [
    *("$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT.A.CLAIMS.UPDATE", "$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.USER.INFO"),
    *("$SRV.PING", "$SRV.STATS.spazio", "spazio.process.x", "other.subject", "spazio", "spazio.cache.cursor"),
    *("_INBOX.x", *(f"_INBOX_{name}.x" for name in ROLES), "_INBOX_node.n1.x", "_INBOX_node.n2.x"),
    *("$O.SPAZIO_CHECKPOINTS.M.x", "$O.SPAZIO_CHECKPOINTS.C.x", "spazio.part.0.samples.n1"),
]


def contract(node: str) -> list[str]:
    """Return every subject and key of the contract, with a node's name where there is one."""
    addresses = [row.address(NAMES) for row in CHANNELS]
    return [
        address.format(
            node=node, partition=0, namespace="n", workload="w", pod="p", uid="u", replica="r", subject="a.b"
        )
        for address in addresses
    ]


SUBJECTS = list(dict.fromkeys([*contract("n1"), *contract("n2"), *API, *map(role.apart, API), *OTHERS]))
OWN = [f"spazio.{kind}.n1" for kind in AGENT_KINDS]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured")) as server:
        asyncio.run(_create(server))
        yield server


async def _create(running: Secured) -> None:
    settings = running.settings("process")
    async with connection.connect(settings, "setup") as client:
        await stream.ensure(client, settings)


@pytest.fixture
async def node(running: Secured) -> AsyncIterator[Attacker]:
    made = await attacker(running, "n1", "_INBOX_node.n1")
    yield made
    await made.client.close()


@pytest.fixture
async def admin(running: Secured) -> AsyncIterator[Connection]:
    async with connection.connect(running.settings("admin"), "admin") as client:
        yield client


async def states(admin: Connection) -> dict[str, tuple[int, int, int]]:
    """Return first and last sequence and number of messages of every stream."""
    result = {}
    for name in STREAMS:
        state = (await admin.jetstream().stream_info(name)).state
        result[name] = (state.first_seq, state.last_seq, state.messages)
    return result


def test_the_agent_of_a_node_publishes_four_kinds_and_facts_are_none_of_them() -> None:
    assert AGENT_KINDS == ("samples", "containers", "pods", "edge")


async def test_a_stolen_credential_of_a_node_publishes_what_it_measures_and_nothing_else(
    node: Attacker, admin: Connection
) -> None:
    before = await states(admin)
    assert await node.publish(SUBJECTS, b"{}") == {subject.lower() for subject in SUBJECTS if subject not in OWN}
    for subject in OWN:
        await node.client.jetstream().publish(subject, b"{}", timeout=1)
    after = await states(admin)
    first, last, count = before.pop("SPAZIO_TELEMETRY")
    assert after.pop("SPAZIO_TELEMETRY") == (max(first, 1), last + 2 * len(OWN), count + 2 * len(OWN))
    assert after == before
    stored = await admin.jetstream().stream_info("SPAZIO_TELEMETRY", subjects_filter=">")
    assert {subject.rsplit(".", 1)[1] for subject in stored.state.subjects or {}} == {"n1"}


async def test_a_node_hears_its_own_inbox_and_the_global_model_and_nothing_else(
    node: Attacker, admin: Connection
) -> None:
    forbidden = [">", "*.>", "$JS.API.>", "$SYS.>", "_INBOX.>", "_INBOX_process.>", "_INBOX_node.>", "_INBOX_node.n2.>"]
    forbidden += ["_INBOX_node.*.>", "spazio.>", "spazio.model.>", "spazio.samples.n1", "$KV.>", "spazio.samples.*"]
    assert await node.subscribe(forbidden) == {subject.lower() for subject in forbidden}
    model = await node.client.subscribe("spazio.model")
    await reached(node.client)
    await admin.publish("spazio.model", b"model")
    assert (await model.next_msg(timeout=5)).data == b"model"
    assert await node.refusals() == set()


@pytest.mark.parametrize(
    "reply",
    [
        *("spazio.samples.n2", "spazio.cursor.0", "spazio.model", "spazio.dead.x", "$KV.SPAZIO_AVAILABILITY.n2"),
        *("$KV.SPAZIO_RESERVATIONS.n2", "$O.SPAZIO_CHECKPOINTS.M.x", "$JS.API.STREAM.PURGE.SPAZIO_TELEMETRY"),
        *("$JS.API.STREAM.MSG.DELETE.SPAZIO_TELEMETRY", "_INBOX_process.x", "$SRV.PING"),
    ],
)
async def test_the_answer_to_a_node_s_own_block_is_stored_nowhere_whatever_reply_subject_it_names(
    node: Attacker, admin: Connection, reply: str
) -> None:
    heard = await admin.subscribe(reply)
    await admin.flush()
    before = await states(admin)
    await node.client.publish("spazio.samples.n1", b"{}", reply=reply)
    await node.client.jetstream().publish("spazio.samples.n1", b"{}", timeout=5)  # the server has done the first
    after = await states(admin)
    first, last, count = before.pop("SPAZIO_TELEMETRY")
    assert after.pop("SPAZIO_TELEMETRY") == (max(first, 1), last + 2, count + 2)
    assert after == before
    with pytest.raises(nats.errors.TimeoutError):
        await heard.next_msg(timeout=0.1)


LIVE = {
    "n2": "spazio.samples.n2",
    "load": "spazio.pods.n5",
    "local": "spazio.edge.n6",
    "watch": "$KV.SPAZIO_NODES.n2",
    "cache": "$KV.SPAZIO_AVAILABILITY.n2",
    "extender": "spazio.decision.n.p",
    "history": "spazio.dead.spazio.live",
    "process": "spazio.model",
    "admin": "spazio.availability.n2",
}


@pytest.mark.parametrize("name", ["reader", "local", "dashboard", "admin"])
async def test_who_reads_everything_hears_each_message_once_as_it_is_published(running: Secured, name: str) -> None:
    """The server passes on no message by two accounts, so that of the publisher has to be heard too."""
    reader = await attacker(running, name)
    heard = [await reader.client.subscribe(each) for each in ("spazio.>", "$KV.>")]
    await reached(reader.client)
    for each, subject in LIVE.items():
        inbox = f"_INBOX_node.{each}" if each == "n2" else f"_INBOX_{'reader' if each == 'local' else each}"
        sender = await attacker(running, each, inbox)
        await sender.client.publish(subject, b"block", headers={"Nats-Msg-Id": f"{name}-{each}"})
        assert await sender.refusals() == set()
        await sender.client.close()
    await reached(reader.client)
    messages = [await each.next_msg(timeout=1) for each in heard for _ in range(each.pending_msgs)]
    assert sorted(each.subject for each in messages) == sorted(LIVE.values())
    assert {each.data for each in messages} == {b"block"}
    assert {(each.headers or {})["Nats-Msg-Id"] for each in messages} == {f"{name}-{each}" for each in LIVE}
    await reader.client.close()


@pytest.mark.cases
@pytest.mark.parametrize("name", [name for name in EACH if name != role.ADMIN])
async def test_the_server_refuses_each_role_what_its_grant_lacks_and_nothing_more(running: Secured, name: str) -> None:
    granted = EACH[name].allowed(NAMES)
    thief = await attacker(running, name, granted.subscribe[0].removesuffix(".>"))
    wanted = [subject for subject in SUBJECTS if not subject.startswith("$SYS")]
    refused = await thief.publish(wanted, b"?")  # no request: the API refuses it
    allowed = {each for each in wanted if any(matches(pattern, each) for pattern in granted.publish)}
    assert refused == {subject.lower() for subject in wanted if subject not in allowed}
    assert allowed, "a role may do something"
    others = [inbox for other in ROLES if (inbox := f"_INBOX_{other}.>") not in granted.subscribe]
    assert len(others) == len(ROLES) - 1
    assert await thief.subscribe(others) == {inbox.lower() for inbox in others}
    await thief.client.close()


APART = {each.name: each for each in (*role.ROLES, role.LOCAL_ROLE) if each.apart}


@pytest.mark.parametrize("name", APART)
async def test_the_answer_to_a_role_s_request_reaches_nothing_whatever_reply_subject_it_names(
    running: Secured, admin: Connection, name: str
) -> None:
    """The server checks the subject of a request only, and would purge a stream for an empty answer."""
    targets = [f"$JS.API.STREAM.{verb}.{kept}" for verb in ("DELETE", "PURGE") for kept in STREAMS]
    targets += [f"$JS.API.CONSUMER.CREATE.{kept}" for kept in STREAMS]
    targets += [*contract("n2"), "_INBOX_process.x", "_INBOX_admin.x", "spazio.process.x", "$SRV.PING"]
    await admin.jetstream().publish("spazio.dead.x", b"letter")
    before = await states(admin)
    granted, inbox = APART[name].allowed(NAMES).publish, APART[name].allowed(NAMES).subscribe[0].removesuffix(".>")
    asked = [each for each in granted if ".API." in each and "CREATE" not in each and "PURGE" not in each]
    thief = await attacker(running, name, inbox)
    for pattern in asked:
        kept = STREAMS[0]
        request = pattern.replace("*", kept, 1).replace("*", "c").replace(">", "spazio.nothing")
        for target in targets:
            for reply in {target, role.apart(target)} - {*granted}:
                await thief.client.publish(request, b'{"seq":1000000}', reply=reply)
    assert len(await stream.missing(admin, running.settings("admin"))) == 0
    await thief.refusals()
    assert await states(admin) == before
    await thief.client.close()


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


@pytest.mark.parametrize("push", [False, True])
async def test_a_stranger_s_consumer_with_the_name_of_a_lease_is_replaced(
    running: Secured, admin: Connection, caplog: pytest.LogCaptureFixture, *, push: bool
) -> None:
    """The server takes a name in the request's body, so a reader, whose tools need that subject, can create one."""
    name = f"taken-{push}"
    config = api.ConsumerConfig(
        name=name,
        ack_policy=api.AckPolicy.EXPLICIT,
        deliver_subject="_INBOX_admin.nobody" if push else None,
    )
    body = json.dumps({"stream_name": NAMES.telemetry, "config": config.as_dict()}).encode()
    thief = await attacker(running, "reader", "_INBOX_reader")
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
            *("$KV.SPAZIO_RESERVATIONS.n1", "spazio.decision.n.p", "spazio.shortage.r", "spazio.dead.spazio.x"),
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
    else:  # a consumer with a name could replace that of a lease
        config = api.ConsumerConfig(filter_subject="spazio.part.*.samples.*", ack_policy=api.AckPolicy.NONE)
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


async def test_services_answer_nobody_on_a_subject_that_is_no_inbox(running: Secured, admin: Connection) -> None:
    """Otherwise an answer would be written with the service's rights: into a key, or as a request to the server."""
    async with (
        connection.connect(running.settings("cache"), "cache") as cache,
        connection.connect(running.settings("process"), "process") as process,
    ):
        await exchange.serve(cache, NAMES.of(role.FLOW), "cache")
        service = await micro.add_service(process, name="asked", version="1.0.0")
        for client in (cache, process):
            await client.flush()
        reader = await attacker(running, "reader")
        await reader.client.publish(NAMES.of(role.FLOW), b"a", reply="$KV.SPAZIO_AVAILABILITY.asked")
        for token in (b"", b"*", b"a.b", b"$KV", b"a" * 65):
            await reader.client.publish(NAMES.of(role.FLOW), token, reply="$KV.SPAZIO_AVAILABILITY.asked")
        await reader.client.publish("$SRV.PING.asked", reply="$O.SPAZIO_CHECKPOINTS.C.asked")
        await reached(reader.client)
        assert [each.service for each in await exchange.ask(admin, NAMES.of(role.FLOW), wait_seconds=0.2)] == ["cache"]
        await service.stop()
        await reader.client.close()
    for name, subject in (
        ("KV_SPAZIO_AVAILABILITY", "$KV.SPAZIO_AVAILABILITY.asked"),
        ("OBJ_SPAZIO_CHECKPOINTS", "$O.SPAZIO_CHECKPOINTS.C.asked"),
    ):
        with pytest.raises(nats.js.errors.NotFoundError):
            await admin.jetstream().get_last_msg(name, subject)


async def test_the_client_says_at_once_what_its_user_may_not_do_and_how_to_mend_it(running: Secured) -> None:
    async with connection.connect(running.settings("n1"), "agent") as client:
        began = asyncio.get_running_loop().time()
        with pytest.raises(Denied, match=r"user node n1 may not publish spazio\.samples\.n2: .*spazio credentials"):
            await client.jetstream().publish("spazio.samples.n2", b"")
        assert asyncio.get_running_loop().time() - began < 0.1
        assert "may not publish spazio.samples.n2" in client.denials.newest()


async def test_what_only_the_server_knows_to_be_forbidden_is_reported_too(
    running: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    async with connection.connect(running.settings("n1"), "agent") as client:
        for _ in range(3):
            await client.subscribe("spazio.availability.*")
        await client.flush()
        assert "may not subscribe to spazio.availability.*" in client.denials.newest()
    assert [record.getMessage() for record in caplog.records].count("nats.denied") == 1


async def test_a_role_that_may_not_create_streams_waits_for_the_processors(tmp_path: Path) -> None:
    with secured(tmp_path) as server:
        settings = server.settings("history")
        async with connection.connect(settings, "history") as client:
            waiting = asyncio.create_task(stream.ensure(client, settings))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await _create(server)
            await asyncio.wait_for(waiting, 3)
            assert client.denials.newest() == ""


def test_every_credential_fits_into_one_line_of_the_protocol(running: Secured) -> None:
    for file in running.folder.rglob("*.creds"):
        assert len(file.read_text().splitlines()[1]) < 3400, "4,096 bytes with signature, names and versions"


def test_each_channel_has_a_role_that_may_publish_it() -> None:
    granted = [pattern for each in role.ROLES if each.name != role.ADMIN for pattern in each.grant(NAMES).publish]
    missing = [subject for subject in contract("n1") if not any(matches(pattern, subject) for pattern in granted)]
    assert missing == []


def test_the_accounts_hold_no_secret(running: Secured) -> None:
    text = (running.folder / "server.conf").read_text()
    assert not [file for file in running.folder.glob("*.nk") if file.read_text().strip() in text]
    issued = json.loads((running.folder / "issued.json").read_text())
    assert not [key for keys in issued["users"].values() for key in keys if not key.startswith("U")]


@pytest.mark.parametrize(
    ("role_name", "source"),
    [
        *((name, NAMES.telemetry) for name in ("process", "history", "extender", "watch", "load", "reader")),
        *((name, NAMES.estimates) for name in ("process", "history", "cache", "metrics", "extender", "kubernetes")),
    ],
)
async def test_every_role_that_reads_a_stream_may_find_out_whether_it_came_back_with_less(
    running: Secured, role_name: str, source: str
) -> None:
    async with asyncio.timeout(10), connection.connect(running.settings(role_name), "test") as client:
        last = (await stream.describe(client, source)).last
        with pytest.raises(setback.SetBack):
            await setback.check(client, source, setback.Mark(last + 1, 1), 1)
