"""Containers, pods and facts in the history: what is written is what was sent, each once, and easy to ask."""

from pathlib import Path

import duckdb
import polars as pl
import pytest

from schemas import codec
from schemas.messages.base import Message
from schemas.messages.estimate import CLASS_COLUMNS, ClassSum, Model
from schemas.messages.facts import UNBOUND
from sinks.history import view
from sinks.history.column import Schema
from sinks.history.continuity.repetition import CopyDetector
from sinks.history.table import TABLES, Table, of_subject
from sinks.history.tables import estimate
from sinks.history.writer import Writer
from tests.support.history import append
from tests.support.processors import predicted, telemetry
from tests.support.processors.telemetry import NAMES
from tests.support.processors.workload import AT_US, event, node, pod, usage

CREATED = "20261121T063000123456Z"


UNKEPT = {"cursor", "edge", "workloads", "reservations", "market", "shortage"}


class Stream:
    """Numbers messages as a stream does."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.sequence = folder, 0
        self.writer = Writer(folder, "S", CREATED, 1)

    def put(self, kind: str, message: Message, node: str = "n") -> None:
        self.sequence += 1
        append(self.writer, NAMES.part(0, kind, node), self.sequence, codec.encode(message))

    def ask(self, sql: str) -> list[tuple[object, ...]]:
        self.writer.flush()
        with view.connect(self.folder, restricted=True) as connection:
            return connection.execute(sql).fetchall()


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    view.create(tmp_path)
    return Stream(tmp_path)


@pytest.mark.slow
def test_a_connection_has_the_views_of_its_version_and_folder_whatever_the_file_holds(tmp_path: Path) -> None:
    folder, moved = tmp_path / "history", tmp_path / "moved"

    def views(directory: Path) -> list[tuple[object, ...]]:
        with view.connect(directory, restricted=True) as connection:
            asked = "SELECT view_name, column_count, contains(sql, ?) FROM duckdb_views() WHERE NOT internal ORDER BY 1"
            return connection.execute(asked, [f"{folder}/"]).fetchall()

    file = view.create(folder)
    copied = views(folder)
    for content in (b"", b"damaged"):
        file.chmod(0o644)
        file.write_bytes(content)
        assert views(folder) == copied
    with duckdb.connect(view.create(folder)) as another_version:
        another_version.execute("DROP VIEW recent_hours; CREATE VIEW recent_hours AS SELECT 1 AS hour")
    assert views(folder) == copied
    view.create(folder)
    folder.rename(moved)
    assert [(name, count, False) for name, count, _ in copied] == views(moved)


def test_every_kind_of_message_that_is_kept_has_its_table() -> None:
    # An edge node sends no samples, sums by workload are made of pods and markets of nodes, which have tables, and of
    # places that are held, and pods that wait, decisions tell.
    assert {table.kind for table in TABLES} == set(codec.MESSAGES) - UNKEPT
    assert all(table.message is codec.MESSAGES[table.kind] for table in TABLES)
    result = [of_subject(NAMES.part(3, kind, "n")) for kind in ("containers", "pods", "nodefacts", "podfacts")]
    assert [table.name for table in result if table] == ["containers", "pods", "nodes", "podfacts"]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_frame_has_the_columns_of_its_table_even_without_messages(table: Table) -> None:
    assert dict(table.frame([]).schema) == types(table.schema)


def types(schema: Schema) -> dict[str, pl.DataType]:
    return {name: kind if isinstance(kind, pl.DataType) else kind() for name, kind in schema.items()}


@pytest.mark.slow
def test_a_container_event_is_a_row_with_its_sources_as_a_list(stream: Stream) -> None:
    stream.put("containers", event())
    assert stream.ask("SELECT event, container, image, sandbox, workload, sources, epoch_us(time) FROM containers") == [
        ("created", "c1", None, False, "shop/web", ["bundle", "cgroup"], AT_US)
    ]


@pytest.mark.slow
def test_a_second_of_pods_adds_up_to_the_node(stream: Stream) -> None:
    stream.put("pods", usage())
    assert stream.writer.rows == 3
    assert stream.ask("SELECT count(*), count(pod), sum(cpu_cores), sum(memory_bytes) FROM pods") == [
        (3, 2, 1.75, 6e9),
    ]
    assert stream.ask("SELECT pod, workload, containers, cpu_cores, throttled, seq FROM pods ORDER BY pod") == [
        ("uid-0", "shop/web", 2, 1.25, 0.2, 1000),
        ("uid-1", None, 1, None, None, 1000),
        (None, None, None, 0.5, None, 1000),
    ]


@pytest.mark.slow
def test_a_node_without_pods_has_a_row_of_everything_else(stream: Stream) -> None:
    stream.put("pods", usage(0, pods=0))
    stream.put("pods", usage(1, pods=0, system=None))
    stream.put("pods", usage(2, pods=1, system=None))
    assert stream.writer.rows == 2
    assert stream.ask("SELECT seq, pod, cpu_cores FROM pods ORDER BY seq") == [(1000, None, 0.5), (1002, "uid-0", 1.25)]


def test_amounts_and_labels_are_maps(stream: Stream) -> None:
    stream.put("nodefacts", node())
    stream.put("podfacts", pod())
    asked = "allocatable['cpu'], labels['topology.kubernetes.io/zone'], labels['none'], taints[1].effect"
    assert stream.ask(f"SELECT {asked}, cardinality(annotations), price FROM nodes") == [
        (3.92, "a", None, "NoSchedule", 0, 0.17)
    ]
    assert stream.ask(
        "SELECT requests['cpu'], cardinality(limits), labels['app'], priority, ready_us FROM podfacts"
    ) == [(0.1, 0, "web", -5, None)]


@pytest.mark.slow
def test_usage_meets_facts_by_pod(stream: Stream) -> None:
    stream.put("podfacts", pod())
    stream.put("pods", usage())
    asked = "SELECT podfacts.name, cpu_cores / requests['cpu'] FROM pods JOIN podfacts USING (pod)"
    assert stream.ask(asked) == [("web", 12.5)]


def test_the_node_of_an_unbound_pod_is_null(stream: Stream) -> None:
    stream.put("podfacts", pod(1, on=UNBOUND), node=UNBOUND)
    stream.put("podfacts", pod(2))
    assert stream.ask("SELECT version, node FROM podfacts ORDER BY version") == [(1, None), (2, "n")]


@pytest.mark.slow
def test_what_the_stream_has_twice_is_in_the_history_once(stream: Stream) -> None:
    messages: list[tuple[str, Message]] = [
        ("containers", event("created")),
        ("containers", event("started")),
        ("containers", event("created", second=9)),
        ("containers", event("created", boot="another")),
        ("pods", usage(0)),
        ("pods", usage(1)),
        ("pods", usage(0, boot="another")),
        ("nodefacts", node(7)),
        ("nodefacts", node(8)),
        ("nodefacts", node(8, deleted=True)),
        ("podfacts", pod(1)),
        ("podfacts", pod(2)),
    ]
    for kind, message in messages:
        stream.put(kind, message)
        stream.put(kind, message)
    for kind, message in messages:
        if kind != "pods":
            stream.put(kind, message)
    counts = {
        table: stream.ask(f"SELECT count(*) FROM {table}")[0][0]
        for table in ("containers", "pods", "nodes", "podfacts")
    }
    assert counts == {"containers": 4, "pods": 3 * 3, "nodes": 3, "podfacts": 2}


def test_no_block_hides_those_after_it_and_no_copy_becomes_a_row() -> None:
    table, given = next(table for table in TABLES if table.name == "samples"), CopyDetector()

    def new(seq: int, second: int, boot: str = "boot") -> bool:
        made = telemetry.block("n", second, seq=seq).model_copy(update={"boot": boot})
        return given.new(table, made)

    assert [new(1000 + second, second) for second in range(10)] == [True] * 10
    for seq, second, boot in ((2**53 - 1, 10, "boot"), (10**6, 10**6 - 1000, "boot"), (1010, 10, "another")):
        assert new(seq, second, boot)
        assert not new(seq, second, boot)
    assert [new(1000 + second, second) for second in range(8, 14)] == [False, False, True, True, True, True]
    assert [new(1000 + second, second) for second in range(8, 14)] == [False] * 6
    # A virtual machine that was set back has its seconds twice, at other times; two hosts of one name take turns.
    assert [new(1000 + second, 500 + second) for second in range(10)] == [True] * 10
    turns = [
        new(seq + second, 600 + second, boot) for second in range(9) for boot, seq in (("one", 1), ("two", 70_000))
    ]
    assert turns == [True] * 18


def test_a_gap_of_a_day_is_no_copy_and_what_came_before_it_is() -> None:
    table, given = next(table for table in TABLES if table.name == "samples"), CopyDetector()
    messages = [telemetry.block("n", second) for second in (0, 1, 86_400, 86_401, 1, 86_400, 86_402)]
    assert [given.new(table, each) for each in messages] == [True, True, True, True, False, False, True]


def test_nodes_that_are_silent_for_an_hour_take_no_memory_and_copies_of_the_others_stay_known() -> None:
    now = [0.0]
    table, given = next(table for table in TABLES if table.name == "samples"), CopyDetector(clock=lambda: now[0])
    for number in range(1000):
        assert given.new(table, telemetry.block(f"gone-{number}", 0))
    assert given.new(table, telemetry.block("n", 0))
    now[0] = 3000.0
    assert given.new(table, telemetry.block("n", 1))
    assert len(given._followed) == 1001
    now[0] = 3601.0
    assert not given.new(table, telemetry.block("n", 0))
    assert len(given._followed) == 1
    assert given.new(table, telemetry.block("gone-7", 0))


def test_the_memory_of_what_was_reported_is_bounded() -> None:
    table, given = next(table for table in TABLES if table.name == "containers"), CopyDetector(kept=100)
    for number in range(1000):
        message = event(container=f"c{number}")
        assert given.new(table, message)
        assert not given.new(table, message)
    assert sum(map(len, given._identities.values())) == 100


@pytest.mark.slow
def test_a_model_keeps_its_classes(stream: Stream) -> None:
    model = Model(
        scope="global",
        at_us=AT_US,
        features=["cpu"],
        moment=[1.0],
        nodes=1,
        pods=2.0,
        cost=[0.5],
        classes={"shop/web": ClassSum(pods=2.0, cpu=0.5, memory=1e9)},
    )
    stream.sequence += 1
    append(stream.writer, NAMES.model, stream.sequence, codec.encode(model))
    assert stream.ask("SELECT classes[1].class, classes[1].memory, length(classes) FROM models") == [
        ("shop/web", 1e9, 1)
    ]


@pytest.mark.slow
def test_garbage_on_a_new_subject_is_refused(stream: Stream) -> None:
    with pytest.raises(codec.Refused):
        stream.put("containers", event(), node="another")
    with pytest.raises(codec.Refused):
        stream.put("pods", event())


@pytest.mark.slow
def test_a_prediction_is_a_row_with_its_peaks_by_group_and_model(stream: Stream) -> None:
    stream.put("prediction", predicted.prediction(), "n1")
    assert stream.ask("SELECT node, model, peak_cpu, reclaimable_memory, violation, reason FROM predictions") == [
        ("n1", "max", 1.5, 1e9, 0.05, "change")
    ]
    listed = "SELECT peak.group, peak.model, peak.chosen, peak.cpu FROM (SELECT unnest(peaks) peak FROM predictions)"
    assert stream.ask(listed) == [
        ("node", "max", True, 1.5),
        ("node", "borg_default", False, 0.5),
        ("prod", "max", True, 0.5),
    ]
    assert stream.ask("SELECT accuracy[1].model, accuracy[1].violations, mid[2].cpu FROM predictions") == [
        ("max", 0.25, 1.5)
    ]


@pytest.mark.slow
def test_rejects_and_forecasts_are_rows(stream: Stream) -> None:
    stream.put("reject", predicted.reject(), "n1")
    stream.put("forecast", predicted.forecast())
    stream.put("subspace", predicted.subspace())
    assert stream.ask("SELECT scope, nodes, sigma FROM subspaces") == [("partition", 7, [2.0, 0.5])]
    assert stream.ask("SELECT subspace FROM rejects") == [("global",)]
    assert stream.ask("SELECT node, reject, score, spikes FROM rejects") == [("n1", True, 0.75, [1, -1])]
    assert stream.ask("SELECT workload, forecast_cpu, forecasts[1].chosen, desired FROM forecasts") == [
        ("w", 1.5, True, 2)
    ]
    scores = {"model": "linear", "violations": 0.25, "severity": 0.1, "overprovision": 0.2, "settled": 4.5}
    assert stream.ask("SELECT accuracy FROM forecasts") == [([scores],)]


def test_everything_of_a_model_is_stored_since_a_replay_needs_it() -> None:
    columns, of_partitions = set(estimate.MODEL), {"above", "below"}  # a replay reads what is merged of them
    assert set(Model.model_fields) - {"v"} - of_partitions <= columns
    assert set(CLASS_COLUMNS) <= columns
    classes = {"shop/web": ClassSum(pods=2.0, cpu=0.5, memory=1e9)}
    model = Model(
        scope="global", at_us=AT_US, features=["cpu"], moment=[1.0], nodes=1, pods=2.0, cost=[0.5], classes=classes
    )
    listed = {field for row in estimate.models([model])["classes"].to_list() for part in row for field in part}
    assert set(ClassSum.model_fields) - of_partitions <= listed | set(CLASS_COLUMNS.values())
