"""Recordings from elsewhere: units, times, missing values, and what cannot be used."""

import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
import pytest
from pydantic import TypeAdapter, ValidationError

from producers.recorded import mapping, recording
from producers.recorded.block import Unusable
from producers.recorded.mapping import Column, Unmapped
from producers.recorded.prepare import Fault
from schemas.messages.telemetry import SampleBlock
from schemas.sections.generator import Replay
from schemas.subject import is_node_name
from spazio import cli
from spazio.service import logs
from spazio.terminal import replayed
from tests.support.processors import telemetry
from tests.support.processors.telemetry import START
from tests.unit.spazio.command.recordings import SIZES, blocks, history, read


def test_csv_in_other_units_and_out_of_order_becomes_blocks_of_a_second(tmp_path: Path) -> None:
    rows = [(f"n{index % 2}", START + index // 2 / 10, index % 100, 2**30 * (index % 7)) for index in range(60)]
    order = np.random.default_rng(1).permutation(60)
    lines = ["host,when,CPU %,mem"] + [",".join(map(str, rows[index])) for index in order]
    (tmp_path / "trace.csv").write_text("\n".join(lines) + "\n")
    columns = ("node=host", "seconds=when", "cpu=CPU %/100", f"memory=mem/{8 << 30}")
    made = blocks(read(tmp_path / "trace.csv", folder=tmp_path, map=columns))
    assert [(block.node, block.at_us, block.samples, block.step_us) for block in made] == [
        (node, (START + second) * 1_000_000, 10, 100_000) for second in range(3) for node in ("n0", "n1")
    ]
    assert made[0].metrics == ["cpu_util", "memory_util"]
    assert made[0].values[:4] == pytest.approx([0.0, 0.0, 0.02, 2 / 8])


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_recording_may_have_columns_of_any_name(tmp_path: Path, ending: str) -> None:
    names = ("number", "filename", "row", "file", "place", "file_row_number")
    table = pl.DataFrame({"node": ["n", "n"], "seconds": [START, START + 1], "cpu_util": [0.5, 2.0]})
    table = table.with_columns(pl.lit("x").alias(name) for name in names)
    (table.write_csv if ending == "csv" else table.write_parquet)(tmp_path / f"a.{ending}")
    replay = Replay.model_validate(SIZES)
    with recording.opened([tmp_path / f"a.{ending}"], replay, tmp_path / "work") as opened:
        assert (opened.prepared.rows, [fault.row for fault in opened.prepared.faults]) == (1, [2])


@pytest.mark.parametrize("first", ["a.csv", "b.csv"])
def test_csv_files_may_have_different_columns_in_any_order(tmp_path: Path, first: str) -> None:
    (tmp_path / "a.csv").write_text(f"node,seconds,cpu_util,memory_util\nn,{START},0.1,0.9\n")
    (tmp_path / "b.csv").write_text(f"more,seconds,node,cpu_util\n7,{START + 1},n,0.3\n")
    files = sorted(tmp_path.glob("*.csv"), key=lambda path: path.name != first)
    made = blocks(read(*files, folder=tmp_path))
    assert [(block.at_us // 1_000_000, block.values) for block in made] == [
        (START, [0.1, 0.9]),
        (START + 1, [0.3, None]),
    ]


def test_times_as_text_are_utc_and_missing_values_stay_missing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "node,time,cpu_util,memory_util\nn,2023-11-14 22:13:20,0.5,\nn,2023-11-14T22:13:21Z,,0.25\n"
    )
    made = blocks(read(tmp_path / "a.csv", folder=tmp_path))
    assert [(block.at_us, block.values) for block in made] == [
        (1_700_000_000_000_000, [0.5, None]),
        (1_700_000_001_000_000, [None, 0.25]),
    ]


def test_a_zone_in_a_time_counts_and_that_of_the_machine_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "America/New_York")
        time.tzset()
        (tmp_path / "a.csv").write_text(
            "node,time,cpu_util\nn,2023-11-15T00:13:20+02:00,0.5\nn,2023-11-14 22:13:21,0.5\n"
        )
        at = datetime.fromtimestamp(START, UTC)
        zoned = pl.DataFrame({"node": ["n", "n"], "time": [at, at + timedelta(seconds=1)], "cpu_util": [0.5, 0.5]})
        zoned.write_parquet(tmp_path / "zoned.parquet")
        zoned.with_columns(pl.col("time").dt.replace_time_zone(None)).write_parquet(tmp_path / "bare.parquet")
        for name in ("a.csv", "zoned.parquet", "bare.parquet"):
            made = blocks(read(tmp_path / name, folder=tmp_path / name.partition(".")[0]))
            assert [block.at_us for block in made] == [START * 1_000_000, (START + 1) * 1_000_000], name
    time.tzset()


def test_a_row_is_good_exactly_if_its_message_may_be_sent(tmp_path: Path) -> None:
    names = [f"a{chr(code)}b" for code in range(1, 0x3100) if chr(code) != "\N{BOM}"] + [
        "a" * 253,
        "a" * 254,
        "é" * 253,
    ]
    cpus = [0.0, 1.0, 65_536.0, 65_537.0, 1e30]
    frame = pl.DataFrame({"node": names + ["n"] * len(cpus), "seconds": START, "cpu_util": 0.5})
    frame = frame.with_columns(cpus=pl.Series([1.0] * len(names) + cpus))
    frame.write_parquet(tmp_path / "a.parquet")
    with recording.opened([tmp_path / "a.parquet"], Replay(), tmp_path / "work") as opened:
        kept = pl.read_parquet(opened.prepared.path)
    assert set(kept["node"]) - {"n"} == {name for name in names if is_node_name(name)}
    assert sorted(kept.filter(node="n")["cpus"]) == [0, 1, 65_536]
    block = SampleBlock.model_fields["cpus"]
    assert TypeAdapter(Annotated[int, *block.metadata]).validate_python(65_536) == 65_536
    with pytest.raises(ValidationError):
        TypeAdapter(Annotated[int, *block.metadata]).validate_python(65_537)


def test_every_bad_row_is_reported_with_its_file_row_column_and_value(tmp_path: Path) -> None:
    good = [f"n,{START + second},0.5" for second in range(5)]
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(
            "\n".join(["node,seconds,cpu_util", *good, "n,soon,0.5", f",{START},0.5", f"n,{START},50"])
        )
    with recording.opened([tmp_path / "a.csv", tmp_path / "b.csv"], Replay(), tmp_path / "work") as opened:
        prepared = opened.prepared
    assert (prepared.rows, prepared.faulty) == (10, 6)
    faults = [(Path(fault.file).name, fault.row, fault.column, fault.value) for fault in prepared.faults]
    assert faults == [
        ("a.csv", 6, "seconds", "soon"),
        ("a.csv", 7, "node", ""),
        ("a.csv", 8, "cpu_util", "50"),
        ("b.csv", 6, "seconds", "soon"),
        ("b.csv", 7, "node", ""),
    ]


@pytest.mark.slow
def test_blocks_are_whole_wherever_rows_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = history(tmp_path / "history", telemetry.recording(nodes=3, seconds=8))
    whole = read(folder, folder=tmp_path)
    frame = pl.concat(
        [pl.read_parquet(path, hive_partitioning=False) for path in (folder / "samples").rglob("2*.parquet")]
    )
    frame.drop("sequence").write_parquet(tmp_path / "flat.parquet")
    by_time = read(tmp_path / "flat.parquet", folder=tmp_path)
    monkeypatch.setattr(recording, "_ROWS", 17)
    assert read(folder, folder=tmp_path) == whole
    in_parts = read(tmp_path / "flat.parquet", folder=tmp_path)
    assert sorted(item.payload for item in in_parts) == sorted(item.payload for item in by_time)
    assert len(by_time) == len(blocks(whole))


def test_what_a_recording_does_not_say_has_to_be_given(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"node,seconds,cpu_util\nn,{START},0.5\n")
    with pytest.raises(Unusable, match="--cpus"):
        read(tmp_path / "a.csv", folder=tmp_path, cpus=0)


@pytest.mark.parametrize("lacking", ["cpus", "memory_bytes"])
def test_sizes_that_nothing_says_are_missed_before_anything_is_sent(tmp_path: Path, lacking: str) -> None:
    (tmp_path / "a.csv").write_text(
        f"node,seconds,cpu_util,{lacking}\na,{START},0.5,4\nb,{START},0.5,\nb,{START + 1},0.5,\n"
    )
    for given, reason in (({lacking: 0}, "node b "), ({}, "")):
        with recording.opened([tmp_path / "a.csv"], Replay.model_validate(SIZES | given), tmp_path / "work") as opened:
            expectation = pytest.raises(Unusable, match=reason) if reason else nullcontext()
            with expectation:
                opened.check()


@pytest.mark.slow
@pytest.mark.parametrize("damage", [{"cpu_cores": pl.lit(-1.0)}, {"span_us": None}])
def test_a_history_with_rows_that_are_none_of_ours_is_refused_with_a_reason(
    tmp_path: Path, damage: dict[str, pl.Expr | None]
) -> None:
    folder = history(tmp_path / "history", telemetry.recording(nodes=2, seconds=4))
    for path in (folder / "pods").rglob("*.parquet"):
        frame = pl.read_parquet(path, hive_partitioning=False)
        for name, value in damage.items():
            frame = frame.drop(name) if value is None else frame.with_columns(value.alias(name))
        frame.write_parquet(path)
    with pytest.raises(Unusable, match="pods: the rows are not from a history"):
        read(folder, folder=tmp_path)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [("cpu", "not name=column"), ("cpus_util=x", "there is no"), ("cpu=x*0", "factor 0"), ("cpu=absent", "no column")],
)
def test_a_map_that_cannot_be_used_is_refused_with_a_reason(tmp_path: Path, entry: str, reason: str) -> None:
    (tmp_path / "a.csv").write_text(f"node,seconds,cpu_util\nn,{START},0.5\n")
    with pytest.raises(Unmapped, match=reason):
        read(tmp_path / "a.csv", folder=tmp_path, map=(entry,))


def test_a_file_that_is_not_there_or_lacks_a_column_is_refused_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(Unmapped, match="does not exist"):
        read(tmp_path / "nothing.csv", folder=tmp_path)
    (tmp_path / "a.csv").write_text("host,cpu_util\nn,0.5\n")
    with pytest.raises(Unmapped, match=r"lacks a time \(at_us, time or seconds\), node"):
        read(tmp_path / "a.csv", folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (
            "passwd",
            "root:x:0:0\n",
            "is neither CSV (*.csv, *.csv.gz) nor Parquet; give such a file, or the folder of a",
        ),
        ("a.parquet", "", "is neither CSV"),
        ("a.csv", "host,load\nn,0.5\n", "lacks a time"),
    ],
)
@pytest.mark.parametrize("kept", ["", "data"])
def test_a_file_that_is_refused_leaves_no_folder_behind(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    *,
    name: str,
    content: str,
    reason: str,
    kept: str,
) -> None:
    (tmp_path / kept).mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    before = set(tmp_path.rglob("*"))
    monkeypatch.setattr(logs, "configure", lambda *_: None)  # it would stay for other tests
    monkeypatch.setattr("sys.argv", ["spazio", "replay", str(tmp_path / name), "--data-dir", str(tmp_path / "data")])
    assert cli.main() == 2
    assert reason in capsys.readouterr().err
    assert set(tmp_path.rglob("*")) == before


def test_factors_are_read_from_the_end_so_that_columns_may_hold_signs() -> None:
    assert mapping.parse(["disk_bytes=kB/s*1024", "cpu=a/b", "memory=m/4e9"]) == [
        Column("disk_bytes", "kB/s", 1024.0),
        Column("cpu_util", "a/b"),
        Column("memory_util", "m", 1 / 4e9),
    ]


@pytest.mark.parametrize(("step", "period"), [(0.005, 1.0), (1, 1.0), (30, 30.0), (300, 300.0)])
def test_the_period_of_a_recording_is_the_usual_step_of_its_nodes(tmp_path: Path, step: float, period: float) -> None:
    rows = [(f"n{node}", 1_700_000_000 + index * step + node) for index in range(60) for node in range(3)]
    trace = tmp_path / "trace.csv"
    gap = ("n0", 1_700_000_000 + 200 * step)
    trace.write_text("\n".join(["node,seconds,cpu_util", *(f"{node},{at},0.4" for node, at in [*rows, gap])]) + "\n")
    with recording.opened([trace], Replay.model_validate(SIZES), tmp_path / "work") as opened:
        assert opened.period_seconds() == period


def test_one_row_is_a_recording_too(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("node,seconds,cpu_util\nn,1700000000,0.4\n")
    with recording.opened([trace], Replay.model_validate(SIZES), tmp_path / "work") as opened:
        assert opened.period_seconds() == 1.0


@pytest.mark.parametrize(
    ("metrics", "sentence"),
    [
        (["cpu_util", "memory_util", "pods"], ""),
        (["cpu_util"], "no memory_util: peaks of cpu are predicted, but no availability"),
        (["memory_util"], "no cpu_util: peaks of memory are predicted, but no availability"),
        (["gpu_util"], "no cpu_util and no memory_util: no peaks are predicted, and no availability"),
    ],
)
def test_a_replay_says_what_a_recording_cannot_give(metrics: list[str], sentence: str) -> None:
    lacking = replayed.lacking(metrics)
    assert sentence in lacking
    assert bool(lacking) == bool(sentence)


@pytest.mark.parametrize(
    ("column", "value", "hinted"), [("time", "1700000000.5", True), ("time", "noon", False), ("cpu_util", "17", False)]
)
def test_seconds_in_a_column_of_times_are_recognized(column: str, value: str, hinted: bool) -> None:
    text = replayed._located(Fault("f.csv", 2, column, value))
    assert text.startswith(f"f.csv row 2, column '{column}': is '{value}', which is not a possible value")
    assert ("name the column seconds" in text) == hinted


@pytest.mark.parametrize(("value", "hinted"), [("1000000000", True), ("17", True), ("-0.5", False), ("many", False)])
def test_an_amount_in_a_column_of_shares_is_recognized(value: str, hinted: bool) -> None:
    assert ("memory=COLUMN/BYTES" in replayed._located(Fault("f.csv", 2, "mem", value))) == hinted
