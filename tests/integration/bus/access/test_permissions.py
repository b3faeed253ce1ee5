"""What each role may do on a real server and what not, tried with the library's client, which checks nothing."""

import nats.errors
import nats.js.errors
import pytest
from nats import micro

from bus import connection, stream
from bus.accounting import exchange
from bus.connection import Connection
from schemas import role
from schemas.channel import AGENT_KINDS
from schemas.subject import matches
from tests.integration.bus.access.contract import API, STREAMS, contract, is_of, requests_of_the_server
from tests.support.server.raw import reached
from tests.support.server.secured import NAMES, Attacker, Secured, attacker

ROLES = {each.name: each for each in role.ROLES}
EACH = ROLES | {role.LOCAL: role.LOCAL_ROLE}
OTHERS = [
    *("$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT.A.CLAIMS.UPDATE", "$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.USER.INFO"),
    *("$SRV.PING", "$SRV.STATS.spazio", "spazio.process.x", "other.subject", "spazio", "spazio.cache.cursor"),
    *("_INBOX.x", *(f"_INBOX_{name}.x" for name in ROLES), "_INBOX_node.n1.x", "_INBOX_node.n2.x"),
    *(
        "$O.SPAZIO_CHECKPOINTS.M.x",
        "$O.SPAZIO_CHECKPOINTS.C.x",
        "$O.SPAZIO_CHECKPOINTS.C.watch.0.x",
        "spazio.part.0.samples.n1",
    ),
]
SUBJECTS = list(dict.fromkeys([*contract("n1"), *contract("n2"), *API, *map(role.apart, API), *OTHERS]))
OWN = [f"spazio.{kind}.n1" for kind in AGENT_KINDS]


async def states(admin: Connection) -> dict[str, tuple[int, int, int]]:
    """Return first and last sequence and number of messages of every stream."""
    result = {}
    for name in STREAMS:
        state = (await admin.jetstream().stream_info(name)).state
        result[name] = (state.first_seq, state.last_seq, state.messages)
    return result


def test_every_request_that_the_server_knows_is_tried() -> None:
    requests = requests_of_the_server()
    assert len(requests) > 40
    tried = {subject.removeprefix("$JS.API.") for subject in API}
    assert [each for each in requests if not any(is_of(verb, each) for verb in tried)] == []


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


@pytest.mark.slow
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
