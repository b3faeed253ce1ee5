"""Sources, files and receivers that fail leave the rest of a block as it is."""

from pathlib import Path

import pytest

from tests.unit.producers.sampling import Rig, Stopwatch, column, count


def test_a_source_that_fails_leaves_the_others_measured() -> None:
    class Constant(Stopwatch):
        metrics = ("one", "two")

    broken = Stopwatch()
    broken.broken = True
    block = Rig(30, [broken, Constant()]).run()[0]
    assert set(column(block, "moment")) == {None}
    assert None not in column(block, "one")


def test_a_file_that_cannot_be_read_leaves_the_others_in_their_columns(tmp_path: Path) -> None:
    class Pathless(Stopwatch):
        metrics = ("one", "two")
        path = tmp_path / "none"

    block = Rig(30, [Pathless(), Stopwatch()]).run()[0]
    assert set(column(block, "one")) == {None}
    assert column(block, "moment") == pytest.approx([42 + index / 10 for index in range(10)])


def test_a_file_that_comes_is_found_within_a_second(tmp_path: Path) -> None:
    class Late(Stopwatch):
        path = tmp_path / "late"

    rig = Rig(40, [Late()])

    def come() -> None:
        (tmp_path / "late").write_text("here\n")

    rig.clock.at[12] = come
    first, second = rig.run()[:2]
    assert set(column(first, "moment")) == {None}
    assert None not in column(second, "moment")


def test_a_block_that_cannot_be_built_is_counted_logged_once_and_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    stopwatch = Stopwatch(facts={})
    rig = Rig(50, [stopwatch])

    def learn() -> None:
        stopwatch.facts = {"cpus": 4, "memory_bytes": 1 << 34}

    rig.clock.at[30] = learn
    failed = count("spazio_block_failures_total")
    assert rig.run()[0].seq == 44
    assert count("spazio_block_failures_total") == failed + 2
    assert [record.message for record in caplog.records] == ["block.failed"]


def test_a_receiver_that_fails_does_not_end_the_sampling() -> None:
    rig = Rig(40)
    refused: list[int] = []

    def refuse_first(seq: int, payload: bytes) -> None:
        if not refused:
            refused.append(seq)
            raise RuntimeError("closed")
        Rig.emit(rig, seq, payload)

    rig.sampler._emit = refuse_first
    assert rig.run()[0].seq == refused[0] + 1


def test_two_sources_of_one_metric_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="two sources give"):
        Rig(1, [Stopwatch(), Stopwatch()])
