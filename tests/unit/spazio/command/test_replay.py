"""Recordings: rows in any order and unit become the blocks that they were, and no row is lost unsaid."""

import shutil
from pathlib import Path
from typing import Literal

import polars as pl
import pytest

from producers.recorded import recording
from producers.recorded.mapping import Unmapped
from schemas import codec
from schemas.messages.base import Message
from schemas.messages.estimate import ClassSum, Model
from schemas.messages.telemetry import PodUsageBlock
from schemas.sections.generator import Replay
from sinks.history import layout, view
from sinks.history.table import TABLES
from sinks.history.tables import pod
from sinks.history.upkeep import merge
from sinks.history.writer import Writer
from spazio.export import frozen, tables
from spazio.terminal.replayed import unread
from tests.support.history import append
from tests.support.processors import telemetry
from tests.support.processors.telemetry import NAMES, START, stored
from tests.unit.spazio.command.recordings import SIZES, blocks, history, read


def once(messages: list[tuple[str, bytes]]) -> list[tuple[str, Message]]:
    """Return what a history keeps of messages, decoded: each once, and no usage without any row."""
    kinds = {subject: subject.split(".")[3] for subject, _ in messages}
    decoded = [
        (kinds[subject], codec.decode(codec.MESSAGES[kinds[subject]], payload))
        for subject, payload in dict.fromkeys(messages)
    ]
    return [item for item in decoded if not isinstance(item[1], PodUsageBlock) or pod.packed(item[1]).rows]


@pytest.mark.slow
def test_a_history_is_replayed_message_by_message_in_its_own_order(tmp_path: Path) -> None:
    messages = telemetry.recording(nodes=4, seconds=10)
    replayed = read(history(tmp_path / "history", messages), folder=tmp_path)
    again = [(message.kind, codec.decode(codec.MESSAGES[message.kind], message.payload)) for message in replayed]
    assert again == once(messages)
    assert len({message.identity for message in replayed}) == len(replayed)


@pytest.mark.slow
def test_declared_kinds_are_recorded_and_replayed(tmp_path: Path) -> None:
    pods = [{"pod": "a", "cpu_cores": 0.5, "memory_bytes": 1e9}, {"pod": "b", "cpu_cores": 0.5, "memory_bytes": 1e9}]
    messages = [
        stored(telemetry.block("n", 0)),
        stored(telemetry.event("n", 0.5).model_copy(update={"kind": "batch"})),
        stored(telemetry.facts("n", "a", "shop/a", kind="serving")),
        stored(telemetry.usage("n", 1, pods, kinds=[None, "batch"])),
        stored(telemetry.usage("n", 2, pods)),
    ]
    replayed = read(history(tmp_path / "history", messages), folder=tmp_path)
    again = [(message.kind, codec.decode(codec.MESSAGES[message.kind], message.payload)) for message in replayed]
    assert sorted(again, key=str) == sorted(once(messages), key=str)


@pytest.mark.slow
def test_a_recorded_model_is_replayed_whole_or_left_out_where_other_features_are_wanted(tmp_path: Path) -> None:
    model = Model(
        scope="global", at_us=START * 1_000_000, features=["cpu", "memory"], moment=[0.1, 0.0, 0.2], cost=[0.0] * 2,
        pods=2, nodes=1, repeats=1.0, transitions=3.0,
        classes={"a": ClassSum(pods=2, cpu=1, memory=1e9, soaking=1.0, running=3.0, started=2.5, recent=0.5)},
    )  # fmt: skip
    messages = [*telemetry.recording(nodes=2, seconds=4), (NAMES.model, codec.encode(model))]
    folder = history(tmp_path / "history", messages)
    with recording.opened([folder], Replay.model_validate(SIZES), tmp_path / "work") as opened:
        assert opened.leave_out_model(["cpu", "memory"], ratios=False) == ""
        kept = [message for message in opened.messages() if message.kind == "model"]
        assert [codec.decode(Model, message.payload) for message in kept] == [model]
        assert opened.leave_out_model(["cpu", "memory", "disk"], ratios=False) == "cpu,memory"
        assert "model" not in opened.kinds
        assert not [message for message in opened.messages() if message.kind == "model"]


@pytest.mark.slow
@pytest.mark.parametrize("ratios", [None, True])
def test_a_model_of_the_same_features_in_other_units_is_left_out(tmp_path: Path, ratios: Literal[True] | None) -> None:
    model = Model(
        scope="global", at_us=START * 1_000_000, features=["cpu", "memory"], moment=[0.1, 0.0, 0.2], cost=[0.0] * 2,
        pods=2, nodes=1, ratios=ratios,
    )  # fmt: skip
    messages = [*telemetry.recording(nodes=2, seconds=4), (NAMES.model, codec.encode(model))]
    folder = history(tmp_path / "history", messages)
    with recording.opened([folder], Replay.model_validate(SIZES), tmp_path / "work") as opened:
        assert opened.leave_out_model(["cpu", "memory"], ratios=bool(ratios)) == ""
        assert opened.leave_out_model(["cpu", "memory"], ratios=not ratios)


@pytest.mark.slow
def test_a_history_without_a_global_model_makes_one(tmp_path: Path) -> None:
    folder = history(tmp_path / "history", telemetry.recording(nodes=2, seconds=4))
    with recording.opened([folder], Replay.model_validate(SIZES), tmp_path / "work") as opened:
        assert "model" in opened.kinds
        assert opened.leave_out_model(["cpu", "memory"], ratios=False) == ""
        assert "model" not in opened.kinds


@pytest.mark.slow
def test_shifted_times_keep_their_distances(tmp_path: Path) -> None:
    folder = history(tmp_path / "history", telemetry.recording(nodes=2, seconds=4))
    kept, moved = read(folder, folder=tmp_path), read(folder, folder=tmp_path, shift_us=5_000_000)
    pairs = zip(blocks(kept), blocks(moved), strict=True)
    assert all(later.at_us - first.at_us == 5_000_000 and later.values == first.values for first, later in pairs)


@pytest.mark.slow
def test_an_older_history_without_places_is_replayed_by_time(tmp_path: Path) -> None:
    folder = history(tmp_path / "history", [stored(telemetry.block("n", second)) for second in range(5)])
    for path in folder.glob("*/date=*/hour=*/*.parquet"):
        frame = pl.read_parquet(path, hive_partitioning=False)
        frame.drop([name for name in ("sequence", "cpus") if name in frame.columns]).write_parquet(path)
    replayed = blocks(read(folder, folder=tmp_path))
    assert [block.seq for block in replayed] == [1000, 1001, 1002, 1003, 1004]
    assert {block.cpus for block in replayed} == {4}


def test_messages_of_a_stream_that_had_no_samples_are_replayed_before_those_of_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    earlier = Writer(folder, "T", "20260101T000000000000Z", 1)
    for sequence, message in enumerate((telemetry.facts("n", "a", "shop/a"), telemetry.event("n", 0)), 1):
        subject, payload = stored(message)
        append(earlier, subject, sequence, payload)
    earlier.flush()
    later = Writer(folder, "T", "20260102T000000000000Z", 1)
    for second in range(3):
        subject, payload = stored(telemetry.block("n", second))
        append(later, subject, second + 1, payload)
    later.flush()
    view.create(folder)
    assert [message.kind for message in read(folder, folder=tmp_path)] == ["podfacts", "containers", *["samples"] * 3]


def test_a_history_is_replayed_as_it_was_although_its_sink_merges_and_removes_files(tmp_path: Path) -> None:
    def listed(path: Path, work: str) -> list[tuple[int, str, str, int, int]]:
        messages = read(path, folder=tmp_path / work)  # a merge changes the order of pods in a second, and nothing else
        return [(each.position, each.kind, each.identity, each.rows, len(each.payload)) for each in messages]

    folder = history(tmp_path / "history", telemetry.recording(nodes=2, seconds=6))
    whole = listed(folder, "first")
    present = frozen.made(folder, tmp_path / "present")
    hours = {path.parent for path, _ in layout.files(folder)}
    for hour in hours:
        for files in layout.by_stream(hour).values():
            merge.merge(hour, files)  # and is killed before it removes what it has merged
    assert listed(frozen.made(folder, tmp_path / "merged"), "second") == whole
    for hour in hours:
        shutil.rmtree(hour)
    assert listed(present, "third") == whole
    assert frozen.made(tmp_path, tmp_path / "none") == tmp_path  # which is no history


@pytest.mark.slow
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_an_export_of_a_history_is_replayed_as_what_it_is_of(tmp_path: Path, form: Literal["parquet", "csv"]) -> None:
    folder = history(tmp_path / "history", telemetry.recording(nodes=2, seconds=6))
    tables.write(folder, tmp_path / "export", form, (), (), None, None)

    def kept(path: Path, work: str) -> list[tuple[str, Message]]:
        messages = read(path, folder=tmp_path / work)
        kinds = {"samples"} if form == "csv" else {message.kind for message in messages}
        again = [(each.kind, codec.decode(codec.MESSAGES[each.kind], each.payload)) for each in messages]
        return sorted((each for each in again if each[0] in kinds), key=str)

    assert kept(tmp_path / "export", "exported") == kept(folder, "whole")


def test_files_of_other_tables_are_no_samples(tmp_path: Path) -> None:
    folder = history(tmp_path / "history", telemetry.recording(nodes=2, seconds=6))
    names = ("samples", "pods", "podfacts")
    tables.write(folder, tmp_path / "export", "parquet", names, (), None, None)
    samples, pods, facts = (tmp_path / "export" / f"{name}.parquet" for name in names)
    with pytest.raises(Unmapped, match=r"podfacts.parquet: has no column of a metric \(cpu_util, .*\); leave that"):
        read(samples, facts, folder=tmp_path)
    for files in ((samples, pods), (pods,)):
        with pytest.raises(Unmapped, match=r"pods.parquet: has usage of pods, and no samples of nodes; leave that"):
            read(*files, folder=tmp_path)


def test_a_folder_is_an_export_only_if_each_of_its_files_is_a_table(tmp_path: Path) -> None:
    folder, export = history(tmp_path / "history", telemetry.recording(nodes=2, seconds=6)), tmp_path / "export"
    tables.write(folder, export, "parquet", [table.name for table in TABLES], (), None, None)
    assert {file.stem for file in export.glob("*.parquet")} == {table.name for table in TABLES}
    assert {message.kind for message in read(export, folder=tmp_path)} == {"samples", "pods", "podfacts", "containers"}
    rows = "node,seconds,cpu_util\n" + "".join(f"n,{START + second},0.5\n" for second in range(3))
    for name in ("samples.csv", "samples.2.csv", "node-b.csv", "copy/pods.csv"):
        other = export / name
        other.parent.mkdir(exist_ok=True)
        other.write_text(rows)
        with pytest.raises(Unmapped, match=rf"{name}: stands beside samples.parquet and may have samples, too"):
            read(export, folder=tmp_path)
        assert len(read(other, folder=tmp_path)) == 3
        other.unlink()


def test_tables_in_csv_are_left_out_with_a_sentence(tmp_path: Path) -> None:
    folder = history(tmp_path / "history", telemetry.recording(nodes=2, seconds=6))
    tables.write(folder, tmp_path / "export", "csv", ("samples", "availability", "pods"), (), None, None)
    with recording.opened([tmp_path / "export"], Replay.model_validate(SIZES), tmp_path / "work") as opened:
        assert opened.kinds == ["samples"]
        assert unread(opened.unread).startswith("pods.csv is left out: of CSV only samples are read")


def test_a_history_that_is_merged_after_its_cursors_were_read_is_copied_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, read_cursors = tmp_path / "history", layout.committed
    view.create(folder)
    created = "20260102T000000000000Z"
    target = Writer(folder, "T", created, 1)

    def write(second: int) -> None:
        subject, payload = stored(telemetry.block("n", second))
        append(target, subject, second + 1, payload)
        target.flush()

    def committed(directory: Path) -> dict[str, int]:
        cursors = read_cursors(directory)
        monkeypatch.setattr(layout, "committed", read_cursors)
        write(3)
        for hour in {path.parent for path, _ in layout.files(folder)}:
            merge.merge(hour, layout.by_stream(hour)[created])
            layout.remove_contained(hour)
        return cursors

    for second in range(3):
        write(second)
    monkeypatch.setattr(layout, "committed", committed)
    copied = frozen.made(folder, tmp_path / "present")
    assert [message.kind for message in read(copied, folder=tmp_path)] == ["samples"] * 4
