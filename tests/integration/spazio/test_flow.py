"""`spazio doctor --flow` against a real server: what was published, read, stored and lost, and whether it adds up."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client
from nats.aio.msg import Msg

from bus import stream
from bus.accounting import exchange, ledger, source
from bus.accounting.ledger import Ledger
from bus.accounting.source import Source
from bus.health import Health
from schemas import codec
from schemas.live import Live
from schemas.settings import Settings
from schemas.subject import Names
from sinks.history import service, writer
from spazio.terminal import flow
from tests.support.processors.telemetry import block

NAMES = Names()


@pytest.fixture
def process_ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A ledger of this test alone."""
    own = Ledger()
    for module in (exchange, service, writer):
        monkeypatch.setattr(module, "LEDGER", own)
    return own


@pytest.mark.slow
async def test_the_ledger_of_the_last_hour_adds_up_and_names_what_was_refused(
    client: Client, settings: Settings, process_ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = settings.model_copy(update={"history": settings.history.model_copy(update={"flush_seconds": 0.2})})
    js, subject = client.jetstream(), NAMES.node("samples", "n")
    await exchange.serve(client, NAMES.of("flow"), "sink history")
    writing = asyncio.create_task(service.run(client, Live(quick), Health()))
    process_ledger.account("process", NAMES.telemetry)
    for number in range(5):
        await js.publish(subject, codec.encode(block("n", number)))
    await js.publish(subject, b"{")
    await js.publish(subject, codec.encode(block("n", 4)))
    await stored(process_ledger, 50)
    assert await flow.show(quick, json_output=True) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["faults"] == []
    # The unreadable block counts as stored, and hides none here: it is not the first and not the last.
    assert shown["agents"]["nodes"] == 1
    assert {each["name"]: each["stored"] for each in shown["streams"]}[NAMES.telemetry] == 7
    lines = {(each["statement"]["account"], each["statement"]["stream"]): each for each in shown["readers"]}
    messages, rows = (lines[name, NAMES.telemetry] for name in ("history", "history rows"))
    assert messages["statement"]["outcomes"] == {"refused": 1, "taken": 6}
    assert (messages["statement"]["received"], messages["behind"], messages["unread"]) == (7, 0, 0)
    assert rows["statement"]["outcomes"] == {"repeated": 10, "stored": 50}
    assert messages["service"] == "sink history"
    writing.cancel()
    await asyncio.wait({writing})

    account = process_ledger.account("history", NAMES.telemetry)
    account.receive(2, 12)  # two arrived, and three are nowhere
    account._minutes[-1].counts["expired"] = 0
    assert await flow.show(quick, json_output=False) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "3 of 12 sequences were neither received nor expired" in output
    assert "has read 5 messages more than the stream has" in output


async def stored(process_ledger: Ledger, rows: int) -> None:
    account = process_ledger.account("history rows", NAMES.telemetry)
    async with asyncio.timeout(60):
        while True:
            if account.statement().outcomes.get("stored", 0) == rows:
                return
            await asyncio.sleep(0.05)


async def test_without_any_answer_the_ledger_does_not_add_up(
    client: Client, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert client.is_connected
    assert await flow.show(settings, json_output=True) == 1
    assert "no service answers" in json.loads(capsys.readouterr().out)["faults"][0]


@pytest.mark.slow
async def test_telemetry_that_no_processor_reads_does_not_add_up(
    client: Client, settings: Settings, process_ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    await stream.ensure(client, settings)
    await exchange.serve(client, NAMES.of("flow"), "sink cache")
    process_ledger.account("cache", NAMES.estimates)
    assert await flow.show(settings, json_output=False) == 0
    assert "the accounts add up; no history sink answers" in capsys.readouterr().out
    await client.jetstream().publish(NAMES.node("samples", "n"), codec.encode(block("n", 0)))
    assert await flow.show(settings, json_output=True) == 1
    assert json.loads(capsys.readouterr().out)["faults"] == [
        f"no `spazio process` answers that folds {NAMES.telemetry}"
    ]
    process_ledger.account("process", NAMES.telemetry)
    assert await flow.show(settings, json_output=True) == 0


async def answering(client: Client, answer: Callable[[str], Awaitable[None]]) -> None:
    """Call a function with the subject of the answer to each request for ledgers."""

    async def answered(message: Msg) -> None:
        await answer(f"{message.subject}.{message.data.decode()}")

    await client.subscribe(NAMES.of("flow"), cb=answered)


async def test_two_different_answers_of_one_service_are_both_reported(client: Client) -> None:
    statement = ledger.Statement("a", "S", 0, 1, True, 1, {}, 0, 0)._asdict()

    async def answer(subject: str) -> None:
        for count in (2, 1):
            accounts = [statement | {"outcomes": {"taken": count}}]
            body = {"service": "s", "host": "h", "pid": 1, "accounts": accounts}
            await client.publish(subject, json.dumps(body).encode())

    await answering(client, answer)
    assert len(await exchange.ask(client, NAMES.of("flow"), wait_seconds=0.2)) == 2


async def test_an_answer_that_the_server_delivers_twice_is_reported_once(client: Client) -> None:
    async def answer(subject: str) -> None:
        for _ in range(2):
            await client.publish(subject, b'{"service": "s", "host": "h", "pid": 1, "accounts": []}')

    await answering(client, answer)
    (report,) = await exchange.ask(client, NAMES.of("flow"), wait_seconds=0.2)
    assert (report.service, report.pid) == ("s", 1)


async def test_a_request_that_the_server_delivers_twice_is_answered_once(client: Client) -> None:
    await exchange.serve(client, NAMES.of("flow"), "sink cache")
    answers = await client.subscribe(NAMES.of("flow", "*"))
    for token in (b"a", b"b", b"a", b"b"):
        await client.publish(NAMES.of("flow"), token)
    subjects = [(await answers.next_msg(timeout=2)).subject for _ in range(2)]
    assert subjects == [NAMES.of("flow", "a"), NAMES.of("flow", "b")]
    with pytest.raises(TimeoutError):
        await answers.next_msg(timeout=0.2)


async def test_an_answer_that_is_none_is_left_out(client: Client) -> None:
    for body in (b"", b"{", b'{"accounts": [{}]}', b"[]"):

        async def answer(subject: str, body: bytes = body) -> None:
            await client.publish(subject, body)

        await answering(client, answer)
    assert await exchange.ask(client, NAMES.of("flow"), wait_seconds=0.2) == []
    assert ledger.LEDGER.statements() is not None


async def test_names_in_answers_are_shown_as_they_are_written_and_asked_for_only_if_a_stream_can_have_them(
    client: Client, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    statement = ledger.Statement("evil\x1b[2J", "", 0, 1, True, 1, {"taken": 1}, 0, 0)._asdict()

    async def answer(subject: str) -> None:
        accounts = [statement | {"stream": name} for name in ("two words", "a.b", "a/b", ">", "\r\nPUB x 0\r\n", "")]
        body = {"service": "s", "host": "h", "pid": 1, "accounts": accounts}
        await client.publish(subject, json.dumps(body).encode())

    await answering(client, answer)
    assert await flow.show(settings, json_output=False) == 0
    shown = capsys.readouterr().out
    assert "two words" in shown
    assert r"evil\x1b[2J" in shown
    assert "\x1b[2J" not in shown


async def test_the_ledger_begins_with_the_blocks_that_agents_should_have_published(
    client: Client, settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # of the terminal that shows the tests
    await stream.ensure(client, settings)
    js = client.jetstream()

    async def publish(node: str, *seconds: int, boot: str = "boot") -> None:
        for second in seconds:
            made = block(node, second).model_copy(update={"boot": boot})
            await js.publish(NAMES.node("samples", node), codec.encode(made))

    await publish("whole", 0, 1, 2, 3)
    await publish("a.lacking", 0, 1, 5, 9)
    await publish("again", 0, 4)
    await publish("again", 1, boot="later")
    await js.publish(NAMES.node("containers", "whole"), b"{}")
    for node, boot in (("whole", "boot"), ("a.lacking", "boot"), ("again", "boot"), ("again", "later")):
        for second in (0, 2) if node == "whole" else (0,):
            usage = {"node": node, "boot": boot, "seq": second}
            await js.publish(NAMES.node("pods", node), json.dumps(usage).encode())
    await flow.show(settings, json_output=True)
    assert json.loads(capsys.readouterr().out)["agents"] == {
        "nodes": 3,
        "looked_at": 3,
        "started_again": 1,
        "due": 18,
        "stored": 11,
        "missing": 7,
        "lacking": [
            {"node": "a_lacking", "kind": "samples", "stored": 4, "due": 10, "missing": 6},
            {"node": "whole", "kind": "pods", "stored": 2, "due": 3, "missing": 1},
        ],
    }
    await flow.show(settings, json_output=False)
    output = " ".join(capsys.readouterr().out.split())
    assert "agents blocks due blocks stored missing" in output
    assert "3 nodes; 1 started again and are not counted 18 11 7" in output
    assert "a_lacking (samples) 10 4 6 whole (pods) 3 2 1" in output


async def test_of_many_nodes_some_are_looked_at_and_it_says_so(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stream.ensure(client, settings)
    monkeypatch.setattr(source, "MOST", 2)
    for node in "abc":
        await client.jetstream().publish(NAMES.node("samples", node), codec.encode(block(node, 0)))
    answer = await source.read(client, NAMES, 2)
    assert ([each.node for each in answer.looked_at], answer.nodes) == (["a", "b"], 3)


@given(seconds=st.sets(st.integers(0, 50), min_size=1))
def test_what_is_missing_is_what_lies_between_the_first_block_and_the_last(seconds: set[int]) -> None:
    due = max(seconds) - min(seconds) + 1
    expected = len(set(range(min(seconds), max(seconds) + 1)) - seconds)
    assert Source("n", "samples", len(seconds), due).missing == expected
    assert Source("n", "samples", len(seconds) + 1, due).missing == max(0, expected - 1)
