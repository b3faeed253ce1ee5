"""What the history does at gaps of a stream, and what keeps one node from stalling it; on real files."""

import json
from pathlib import Path

import pytest
from prometheus_client import Counter

from bus.reading.setback import Mark
from processors import decode
from schemas import codec
from schemas.live import Live
from schemas.messages.facts import NodeFacts
from schemas.settings import Settings
from sinks.history import layout, service, table, view
from sinks.history.continuity import epoch
from sinks.history.continuity.epoch import REMEMBERED_US, Position
from sinks.history.continuity.gap import EXPIRED, GAP_ROWS, GAP_SECONDS, MISSING, Gaps, Pace
from sinks.history.continuity.hour import ODD
from sinks.history.continuity.quota import OVER_QUOTA
from sinks.history.continuity.repeated import REPEATED
from sinks.history.tables import sample
from sinks.history.upkeep import retention
from sinks.history.writer import Window, Writer
from tests.support.history import append, ask
from tests.support.processors import telemetry, workload
from tests.support.processors.telemetry import NAMES, block

CREATED = "20261121T063000123456Z"
HOUR = 3600
ALWAYS = (-(2**62), 2**62)
NOW_US = 1_800_000_000_000_000


def value(counter: Counter, *labels: str) -> float:
    return float((counter.labels(*labels) if labels else counter)._value.get())


def counted(directory: Path, sql: str) -> int:
    with view.connect(directory, restricted=True) as connection:
        row = connection.execute(sql).fetchone()
    return int(row[0]) if row else -1


def put(target: Writer, sequence: int, second: int, node: str = "n", stored_us: int = 0) -> None:
    subject = NAMES.part(0, "samples", node)
    message = table.decode(subject, codec.encode(block(node, second)))
    assert message is not None
    target.append(subject, sequence, message, stored_us)


@pytest.mark.slow
def test_facts_that_change_without_a_new_version_are_stored_and_copies_of_them_are_not(tmp_path: Path) -> None:
    """With another price label the same object has another price."""
    target = Writer(tmp_path, "S", CREATED, 1)
    node, pod = workload.node(), workload.pod()
    of_node = [node, node.model_copy(update={"price": 0.25, "at_us": node.at_us + 1})]
    of_pod = [pod, pod.model_copy(update={"workload": "shop/api", "at_us": pod.at_us + 1})]
    again = [each.model_copy(update={"at_us": workload.AT_US + 9}) for each in (*of_node, *of_pod)]
    for sequence, message in enumerate([*of_node, *of_pod, *of_node, *of_pod, *again], 1):
        kind = "nodefacts" if isinstance(message, NodeFacts) else "podfacts"
        append(target, NAMES.part(0, kind, "n"), sequence, codec.encode(message))
    target.flush()
    view.create(tmp_path)
    assert ask(tmp_path, "SELECT price FROM nodes ORDER BY at_us") == [(0.17,), (0.25,)]
    assert ask(tmp_path, "SELECT workload FROM podfacts ORDER BY at_us") == [("shop/web",), ("shop/api",)]


def test_events_of_very_many_hours_cost_few_files_and_are_all_stored(tmp_path: Path) -> None:
    target, before = Writer(tmp_path, "S", CREATED, 1), value(ODD)
    for sequence in range(1, 701):
        event = telemetry.event("liar", sequence * HOUR, container=f"c{sequence}")
        append(target, NAMES.part(0, "containers", "liar"), sequence, codec.encode(event))
    for sequence in range(701, 711):
        event = telemetry.event("n", 800 * HOUR, container=f"c{sequence}")
        append(target, NAMES.part(0, "containers", "n"), sequence, codec.encode(event))
    assert target.flush() == 710
    assert len(list(layout.files(tmp_path))) == 24
    assert value(ODD) - before == 700 - 23
    assert counted(tmp_path, "SELECT count(*) FROM containers") == 710
    assert counted(tmp_path, "SELECT count(*) FROM containers WHERE node = 'n' AND hour(time) <> hour") == 0


def test_rows_of_very_many_hours_are_all_in_their_own_where_nodes_have_no_limit(tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {"history": {"node_messages_per_minute": 0, "retention_seconds": 86_400.0 * 36_500, "dir": str(tmp_path)}}
    )
    target = Writer(tmp_path, "S", CREATED, 1, lambda: service.window(Live(settings)))
    for sequence in range(1, 49):
        put(target, sequence, sequence * HOUR)
    assert target.flush() == 480
    assert counted(tmp_path, "SELECT count(*) FROM samples") == 480
    assert counted(tmp_path, "SELECT count(*) FROM samples WHERE date <> time::DATE OR hour <> hour(time)") == 0


def test_what_a_producer_sends_again_after_the_history_started_again_is_stored_once(tmp_path: Path) -> None:
    """The server stored it and went away before it could say so, longer than it remembers ids."""
    target = Writer(tmp_path, "S", CREATED, 1)
    for second in range(10):
        put(target, second + 1, second)
    target.flush()
    again, before = Writer(tmp_path, "S", CREATED, 1), value(REPEATED, "samples")
    for sequence, second in enumerate((8, 9, 10, 11), 11):
        put(again, sequence, second)
    again.flush()
    assert value(REPEATED, "samples") - before == 20
    assert counted(tmp_path, "SELECT count(*) FROM samples") == 120
    assert counted(tmp_path, "SELECT count(DISTINCT seq) FROM samples") == 12


def test_while_this_machines_clock_is_behind_what_the_server_has_stored_is_not_of_the_future(tmp_path: Path) -> None:
    target = Writer(tmp_path, "S", CREATED, 1, lambda: Window(ALWAYS[0], 1_000_000))
    put(target, 1, 5, stored_us=(telemetry.START + 9) * 1_000_000)
    target.flush()
    assert counted(tmp_path, "SELECT count(*) FROM samples") == 10
    put(target, 2, 5000, stored_us=(telemetry.START + 10) * 1_000_000)
    target.flush()
    assert counted(tmp_path, "SELECT count(*) FROM samples") == 10, "it is of the future of the server, too"


def test_while_this_machines_clock_is_ahead_what_the_server_has_stored_now_is_not_too_old(tmp_path: Path) -> None:
    week_us = 7 * 24 * 3_600_000_000
    now_us = telemetry.START * 1_000_000 + 2 * week_us
    target = Writer(tmp_path, "S", CREATED, 1, lambda: Window(now_us - week_us, now_us, 0, week_us))
    put(target, 1, 5, stored_us=(telemetry.START + 6) * 1_000_000)
    target.flush()
    assert counted(tmp_path, "SELECT count(*) FROM samples") == 10
    put(target, 2, 6, stored_us=now_us)
    target.flush()
    assert counted(tmp_path, "SELECT count(*) FROM samples") == 10, "it is too old for the server, too"
    stored = layout.stored_us(tmp_path)
    assert stored == now_us
    assert retention.confirmed(tmp_path, now_us + 3_600_000_000) == now_us + 3_600_000_000
    assert retention.confirmed(tmp_path, now_us + week_us) == now_us + 24 * 3_600_000_000
    assert retention.confirmed(tmp_path / "new", now_us) == now_us


def test_a_node_beyond_its_quota_is_refused_and_the_others_are_stored(tmp_path: Path) -> None:
    target = Writer(tmp_path, "S", CREATED, 1, lambda: Window(*ALWAYS, 5))
    before = value(OVER_QUOTA, "samples")
    for second in range(20):
        put(target, 2 * second + 1, second, "liar", 1)
        put(target, 2 * second + 2, second // 4, "n", 1)
    put(target, 41, 20, "liar", 60_000_000)  # the next minute of the stream
    target.flush()
    assert value(OVER_QUOTA, "samples") - before == 2 * 15 * 10
    assert counted(tmp_path, "SELECT count(*) FROM samples WHERE node = 'liar'") == 60
    assert counted(tmp_path, "SELECT count(DISTINCT seq) FROM samples WHERE node = 'n'") == 2


def test_a_gap_is_counted_in_seconds_and_rows_of_each_table() -> None:
    samples = table.of_subject(NAMES.part(0, "samples", "n"))
    assert samples is not None
    gaps = Gaps("S", {})
    before = value(GAP_SECONDS, "samples", EXPIRED), value(GAP_ROWS, "samples", EXPIRED), value(MISSING, "samples")
    for second in range(100):
        gaps.note(samples, block("n", second), second * 1_000_000)
    again = Gaps("S", gaps.pace)  # after a restart
    again.begin(EXPIRED, 30)
    again.note(samples, block("n", 130), 140 * 1_000_000)
    again.note(samples, block("n", 131), 141 * 1_000_000)
    again.note(samples, block("n", 134), 144 * 1_000_000)
    assert value(GAP_SECONDS, "samples", EXPIRED) - before[0] == pytest.approx(31)
    assert value(GAP_ROWS, "samples", EXPIRED) - before[1] == pytest.approx(300, rel=0.05)
    assert value(MISSING, "samples") - before[2] == 2


def test_a_wrong_clock_makes_no_gap_longer_than_the_stream_was_silent() -> None:
    samples = table.of_subject(NAMES.part(0, "samples", "n"))
    assert samples is not None
    gaps, before = Gaps("S", {}), value(GAP_SECONDS, "samples", EXPIRED)
    gaps.note(samples, block("n", 0), 0)
    gaps.begin(EXPIRED)
    gaps.note(samples, block("other", 86_400 * 365), 10_000_000)
    gaps.begin(EXPIRED)
    gaps.note(samples, block("n", 11), 11_000_000)
    assert value(GAP_SECONDS, "samples", EXPIRED) - before == pytest.approx(10)


def test_an_epoch_begins_behind_what_is_kept_and_leaves_earlier_files_alone(tmp_path: Path) -> None:
    target = Writer(tmp_path, "S", CREATED, 1)
    for second in range(10):
        put(target, second + 1, second, stored_us=second + 1)
    target.flush()
    position = epoch.read(tmp_path, "S", CREATED)
    assert (position.created, position.read) == (CREATED, Mark(10, 10))
    begun = epoch.begin(tmp_path, "S", position, Mark(6, 6), NOW_US)
    assert epoch.read(tmp_path, "S", CREATED) == begun
    assert (begun.created, begun.read) == (CREATED + "E01Z", Mark(6, 6))
    later = Writer(tmp_path, "S", begun.created, 1, position=begun)
    assert (later.cursor, later.read) == (6, Mark(6, 6))
    for second in range(10, 15):
        put(later, second - 3, second, stored_us=second + 100)
    later.flush()
    again = Writer(tmp_path, "S", begun.created, 1, position=epoch.read(tmp_path, "S", CREATED))
    assert again.read == Mark(11, 114)
    assert counted(tmp_path, "SELECT count(*) FROM samples") == 150
    assert counted(tmp_path, "SELECT count(DISTINCT seq) FROM samples") == 15


def test_rows_of_an_ended_epoch_that_come_again_are_left_out_for_some_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time_ns", lambda: NOW_US * 1000)
    target, before = Writer(tmp_path, "S", CREATED, 1), value(REPEATED, "samples")
    for second in range(10):
        put(target, second + 1, second, stored_us=second + 1)
    target.flush()
    begun = epoch.begin(tmp_path, "S", epoch.read(tmp_path, "S", CREATED), Mark(6, 6), NOW_US)
    later = Writer(tmp_path, "S", begun.created, 1, position=begun)
    for sequence, second in enumerate((7, 8, 10, 11), 7):
        put(later, sequence, second)
    assert later.flush() == 20
    assert value(REPEATED, "samples") - before == 20
    assert counted(tmp_path, "SELECT count(*) FROM samples") == 120
    monkeypatch.setattr("time.time_ns", lambda: (NOW_US + REMEMBERED_US + 1) * 1000)
    assert epoch.begin(tmp_path, "S", begun, Mark(8, 8), NOW_US + REMEMBERED_US + 1).earlier == (
        (begun.created, 8, NOW_US + REMEMBERED_US + 1),
    )


def test_rows_of_a_stream_that_was_deleted_and_made_again_are_stored_once(tmp_path: Path) -> None:
    """Processors go back to their checkpoints then, and publish again what the history has from the old stream."""
    target, before = Writer(tmp_path, "S", CREATED, 1), value(REPEATED, "samples")
    for second in range(10):
        put(target, second + 1, second, stored_us=second + 1)
    target.flush()
    new = "20270101T000000000000Z"
    for _ in range(2):  # the history ends before it has written anything, too
        later = Writer(tmp_path, "S", new, 1, position=epoch.read(tmp_path, "S", new)._replace(created=new))
    for sequence, second in enumerate((8, 9, 10, 11), 1):
        put(later, sequence, second)
    assert later.flush() == 20
    assert value(REPEATED, "samples") - before == 20
    assert counted(tmp_path, "SELECT count(*) FROM samples") == 120
    assert counted(tmp_path, "SELECT count(DISTINCT seq) FROM samples") == 12


def test_a_lost_or_old_cursor_names_the_newest_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: NOW_US * 1000)
    assert epoch.read(tmp_path, "S", CREATED) == Position("", Mark(0))
    layout.write_cursor(tmp_path, "S", CREATED, 4)  # by an earlier version
    assert epoch.read(tmp_path, "S", CREATED) == Position(CREATED, Mark(4))
    assert epoch.read(tmp_path, "S", "20270101T000000000000Z") == Position(
        "", Mark(0), (epoch.Earlier(CREATED, 0, NOW_US),)
    )
    for created, last in ((CREATED, 9), (CREATED + "E01Z", 5), (CREATED + "E02Z", 3)):
        target = Writer(tmp_path, "S", created, 1)
        put(target, last, last)
        target.flush()
    (tmp_path / ".S.cursor.json").write_text("{")
    assert epoch.read(tmp_path, "S", CREATED) == Position(CREATED + "E02Z", Mark(3))
    content = {"created": CREATED, "sequence": 3, "stored_us": 5, "earlier": [[1]], "pace": []}
    (tmp_path / ".S.cursor.json").write_text(json.dumps(content))
    assert epoch.read(tmp_path, "S", CREATED) == Position(CREATED, Mark(3))


def test_the_cursor_of_a_stream_that_was_recreated_leaves_its_pace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time_ns", lambda: NOW_US * 1000)
    pace = {"samples": Pace(1, 2, 3, 0.5)}
    layout.write_cursor(tmp_path, "S", CREATED, 4, Position(CREATED, Mark(4, 4), (), pace).extra)
    assert epoch.read(tmp_path, "S", "20270101T000000000000Z") == Position(
        "", Mark(0), (epoch.Earlier(CREATED, 0, NOW_US),), pace
    )


@pytest.mark.parametrize(
    ("metrics", "values"),
    [
        (["cpu_util", "pods"], [0.5, 3.0, 1.5, 3.0]),
        (["cpu_util", "pods"], [0.5, 3.0, None, -1.0]),
        (["disk_bytes", "cpu_util"], [5e9, 1.0, None, 0.0]),
        (["of_a_later_version", "cpu_util"], [-5.0, 0.5]),
    ],
)
def test_the_history_refuses_a_block_where_processors_refuse_it(metrics: list[str], values: list[float | None]) -> None:
    sent = block("n", 0).model_copy(update={"metrics": metrics, "values": values})
    subject, payload = telemetry.stored(sent)
    _, refused = decode.messages([(subject, payload)], NAMES.model)
    if not refused:
        assert table.decode(subject, payload) == sample.raw(sent)
        return
    with pytest.raises(codec.Refused) as refusal:
        table.decode(subject, payload)
    assert [str(refusal.value)] == [reason for _, reason in refused]
