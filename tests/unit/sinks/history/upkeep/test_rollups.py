"""Roll-ups: equal to numpy on every step, each row in exactly one, whatever is killed, and one view over them all."""

import shutil
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from schemas import codec, metric
from schemas.messages.telemetry import SampleBlock
from sinks.history import layout, view
from sinks.history.tables.rolled import OF_SAMPLES, SAMPLES_1M, SAMPLES_1S, SAMPLES_10S, Rolled
from sinks.history.writer import Writer
from tests.support.extender.placement import report
from tests.support.history import append
from tests.support.processors.telemetry import METRICS, NAMES, START, block
from tests.unit.sinks.history.upkeep.steps import CREATED, DAY, FIRST, HOUR, ask, at_us, history, put, tidy


def values(blocks: list[SampleBlock], node: str, name: str, start: int, seconds: int) -> NDArray[np.float64]:
    """Return the samples of a step, in order."""
    column = block("a", 0).metrics.index(name)
    chosen = [each for each in blocks if each.node == node and at_us(start) <= each.at_us < at_us(start + seconds)]
    rows = [np.reshape(np.array(each.values, dtype=float), (-1, len(each.metrics)))[:, column] for each in chosen]
    return np.sort(np.concatenate(rows))


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "rolled"), OF_SAMPLES.items(), ids=lambda each: getattr(each, "name", ""))
def test_a_step_has_the_least_mean_greatest_and_95th_percentile_of_its_samples(
    tmp_path: Path, seconds: int, rolled: Rolled
) -> None:
    blocks = history(tmp_path, range(130))
    tidy(tmp_path, 3 * HOUR, retention_1s_seconds=DAY)
    columns = "cpu_util_min, cpu_util, cpu_util_max, cpu_util_p95, memory_util_p95"
    rows = ask(tmp_path, f"SELECT node, at_us, samples, cpus, {columns} FROM {rolled.name} ORDER BY node, at_us")
    steps = range(0, 130, seconds)
    assert [row[:2] for row in rows] == [(node, at_us(step)) for node in ("a", "b") for step in steps]
    for node, begin_us, samples, cpus, least, mean, most, p95, memory in rows:
        start = begin_us // 1_000_000 - START - FIRST
        expected = values(blocks, node, "cpu_util", start, seconds)
        rank = -(-95 * len(expected) // 100) - 1
        assert (samples, cpus, least, most, p95) == (len(expected), 4, expected[0], expected[-1], expected[rank])
        assert mean == pytest.approx(expected.mean(), abs=1e-6)
        assert memory == values(blocks, node, "memory_util", start, seconds)[rank]


@pytest.mark.slow
def test_every_metric_has_its_four_columns(tmp_path: Path) -> None:
    view.create(tmp_path)
    expected = {name: round(0.25 + index / 100, 2) for index, name in enumerate(metric.NAMES)}
    values = [expected[name] for name in METRICS] * 10
    blocks = [block("a", FIRST).model_copy(update={"values": values})]
    put(Writer(tmp_path, "S", CREATED, 1), blocks, 1)
    tidy(tmp_path, 3 * HOUR)
    columns = [
        (f"{name}{suffix}", value) for name, value in expected.items() for suffix in ("", "_min", "_max", "_p95")
    ]
    for table in ("samples_1m", "samples_all"):
        rows = ask(tmp_path, f"SELECT DISTINCT {', '.join(name for name, _ in columns)} FROM {table}")
        assert rows == [tuple(value for _, value in columns)]


class Recorded(NamedTuple):
    """A history, and the blocks that were written into it."""

    folder: Path
    blocks: list[SampleBlock]


@pytest.fixture(scope="module")
def seamed(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Four hours: of one the minutes are left, of one tens of seconds, of one seconds, and of the last its rows."""
    folder = tmp_path_factory.mktemp("seams")
    blocks: list[SampleBlock] = []
    for hour in range(1, 5):
        blocks += history(folder, range(hour * HOUR - 70, hour * HOUR), first=140 * hour - 139)
    now = 4 * HOUR + 700
    tidy(folder, now, retention_1s_seconds=DAY)
    ages = {"retention_seconds": now - 3 * HOUR - 60, "retention_1s_seconds": now - 2 * HOUR - 60}
    tidy(folder, now, **ages, retention_10s_seconds=now - HOUR - 60)
    return Recorded(folder, blocks)


@pytest.mark.slow
def test_each_hour_comes_from_the_finest_rows_that_are_left_without_overlap_or_gap(seamed: Recorded) -> None:
    result = ask(
        seamed.folder,
        "SELECT hour, min(resolution_seconds), max(resolution_seconds), count(*), sum(samples) FROM samples_all "
        "GROUP BY date, hour ORDER BY date, hour",
    )
    first = (START + FIRST) // HOUR % 24
    assert result == [
        ((first + 0) % 24, 60, 60, 2 * 2, 1400),
        ((first + 1) % 24, 10, 10, 2 * 7, 1400),
        ((first + 2) % 24, 1, 1, 2 * 70, 1400),
        ((first + 3) % 24, 0, 0, 2 * 700, 1400),
    ]
    given = [value for each in seamed.blocks for value in each.values[:: len(each.metrics)] if value is not None]
    asked = "SELECT sum(cpu_util * samples) / sum(samples), max(cpu_util_max) FROM samples_all"
    assert ask(seamed.folder, asked)[0] == pytest.approx((np.mean(given), max(given)), abs=1e-6)


@pytest.mark.slow
def test_at_a_seam_the_last_step_of_one_hour_meets_the_first_of_the_next(seamed: Recorded) -> None:
    ends = ask(
        seamed.folder,
        "SELECT resolution_seconds, max(at_us) FROM samples_all GROUP BY 1 ORDER BY 1 DESC",
    )
    assert ends == [
        (60, at_us(HOUR - 60)),
        (10, at_us(2 * HOUR - 10)),
        (1, at_us(3 * HOUR - 1)),
        (0, at_us(4 * HOUR - 1) + 900_000),
    ]


@pytest.mark.slow
def test_an_hour_that_is_missing_between_others_comes_from_its_roll_up(tmp_path: Path) -> None:
    for hour in range(3):
        history(tmp_path, range(hour * HOUR, hour * HOUR + 20), first=1 + 40 * hour)
    tidy(tmp_path, 6 * HOUR)
    (lost,) = layout.hour_folder(tmp_path, "samples", at_us(HOUR)).glob("*.parquet")
    lost.unlink()
    asked = (
        "SELECT resolution_seconds, count(*), sum(samples) FROM samples_all GROUP BY date, hour, 1 ORDER BY min(at_us)"
    )
    assert ask(tmp_path, asked) == [(0, 400, 400), (10, 4, 400), (0, 400, 400)]


def test_what_the_view_does_not_take_is_not_read(seamed: Recorded, tmp_path: Path) -> None:
    shutil.copytree(seamed.folder, tmp_path / "copy")
    sizes = Counter[int]()
    for path, _ in layout.files(tmp_path / "copy"):
        hour = ((layout.hour_of(path.parent) or 0) - at_us(0)) // layout.HOUR_US
        finest = [SAMPLES_1M.name, SAMPLES_10S.name, SAMPLES_1S.name, "samples"][hour]
        if path.parents[2].name != finest:
            spoil(path)
            sizes[hour] += 1
    assert sizes == {1: 1, 2: 2, 3: 3}
    assert ask(tmp_path / "copy", "SELECT sum(samples), count(cpu_util_max) FROM samples_all") == [
        (5600, 2 * (2 + 7 + 70 + 700))
    ]


def spoil(path: Path) -> None:
    """Overwrite all pages of a file; its footer stays."""
    content = path.read_bytes()
    footer = int.from_bytes(content[-8:-4], "little") + 8
    path.write_bytes(content[:4] + bytes(len(content) - footer - 4) + content[-footer:])


def availability(directory: Path, seconds: range, first: int) -> None:
    view.create(directory)
    target = Writer(directory, "S", CREATED, first)
    for sequence, second in enumerate(seconds, first):
        message = report("a", at_us(second), second % 7 + 0.5).model_copy(update={"cpu_used": second % 5 / 8})
        append(target, NAMES.part(0, "availability", "a"), sequence, codec.encode(message))
    target.flush()


@pytest.mark.slow
def test_availability_by_the_minute_says_the_same_before_and_after_its_roll_up_and_outlives_the_rows(
    tmp_path: Path,
) -> None:
    asked = "SELECT * EXCLUDE (date, hour) FROM availability_1m ORDER BY minute"
    availability(tmp_path, range(30, 200), 1)
    before = ask(tmp_path, asked)
    assert [row[2] for row in before] == [30, 60, 60, 20]
    tidy(tmp_path, 3 * HOUR)
    after = ask(tmp_path, asked)
    assert [row[:3] for row in after] == [row[:3] for row in before]
    for new, old in zip(after, before, strict=True):
        assert new[3:] == pytest.approx(old[3:])
    availability(tmp_path, range(200, 240), 1001)  # late: the minute is counted again from the rows
    assert [row[2] for row in ask(tmp_path, asked)] == [30, 60, 60, 60]
    tidy(tmp_path, 3 * HOUR)
    assert [row[2] for row in ask(tmp_path, asked)] == [30, 60, 60, 60]
    tidy(tmp_path, 31 * DAY)
    assert ask(tmp_path, "SELECT count(*) FROM availability") == [(0,)]
    assert [row[2] for row in ask(tmp_path, asked)] == [30, 60, 60, 60]
    assert ask(tmp_path, "SELECT sum(nodes) FROM cluster_room") == [(4,)]
    availability(tmp_path, range(180, 190), 2001)  # late, when the other rows of the hour are gone
    assert [row[2] for row in ask(tmp_path, asked)] == [30, 60, 60, 60]
    tidy(tmp_path, 3 * HOUR)
    assert [row[2] for row in ask(tmp_path, asked)] == [30, 60, 60, 70]


@pytest.mark.slow
def test_totals_of_the_cluster_are_the_same_before_and_after_their_roll_up_and_outlive_the_rows(
    tmp_path: Path,
) -> None:
    view.create(tmp_path)
    target = Writer(tmp_path, "S", CREATED, 1)
    for sequence in range(1, 121):
        node, second = f"n{sequence % 3}", sequence % 40
        rooms = {"shop/web": (2.5 + second % 4, 1.5), "data/ingest": (1.0, 0.5)}
        message = report(node, at_us(second), 3.0, classes=rooms, free={"cpu": 4.0, "memory": 8e9})
        append(target, NAMES.part(0, "availability", node), sequence, codec.encode(message))
    target.flush()
    before = ask(tmp_path, "SELECT * FROM cluster ORDER BY at_us, class")
    assert [row[1] for row in before] == [at_us(step) for step in (0, 10, 20) for _ in range(2)]
    tidy(tmp_path, 3 * HOUR)
    columns = [row[0] for row in ask(tmp_path, "DESCRIBE cluster")]
    assert "fluid" in columns
    after = ask(tmp_path, "SELECT * FROM cluster ORDER BY at_us, class")
    assert after[:6] == before
    assert [row[1] for row in after[6:]] == [at_us(30), at_us(30)]  # the hour is closed: nothing of it fills any more
    tidy(tmp_path, 31 * DAY)
    assert ask(tmp_path, "SELECT * FROM cluster ORDER BY at_us, class") == after
