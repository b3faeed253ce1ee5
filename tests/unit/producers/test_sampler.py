"""The sampler on virtual time."""

import json
import threading
from pathlib import Path

import pytest

from producers import clock as grid
from producers import inventory, sampler
from schemas import codec
from schemas.messages.telemetry import SampleBlock
from schemas.sections.measurement import Sample
from tests.unit.producers.sampling import EPOCH, MS, Rig, Stopwatch, column, count


def test_the_first_block_is_that_of_the_next_whole_second_and_has_differences_from_its_first_row() -> None:
    block, _ = Rig(30).run()
    assert block.seq == 42
    assert column(block, "moment") == pytest.approx([42 + index / 10 for index in range(10)])
    assert column(block, "passed") == pytest.approx([0.1] * 10)


def test_a_block_says_what_the_contract_asks() -> None:
    block = Rig(30).run()[0]
    assert (block.v, block.node, block.boot, block.step_us) == (1, "ip-10-0-0-7.internal", "3f2504e0", 100_000)
    assert (block.cpus, block.memory_bytes, block.samples) == (4, 1 << 34, 10)
    assert block.at_us == (EPOCH + 42 * grid.SECOND) // 1000


def test_a_payload_survives_the_codec_and_holds_four_decimals() -> None:
    rig = Rig(30)
    blocks = rig.run()
    for (_, payload), block in zip(rig.payloads, blocks, strict=True):
        assert codec.decode(SampleBlock, codec.encode(block)) == block
        assert json.loads(payload) == json.loads(codec.encode(block))
        assert all(value == round(value, 4) for value in block.values if value is not None)


def test_a_block_is_handed_on_with_its_last_row_and_not_a_second_later() -> None:
    rig = Rig(18)
    rig.run()
    assert rig.clock.now == 42 * grid.SECOND + 900 * MS + 100 * MS
    assert [seq for seq, _ in rig.payloads] == [42]


def test_a_late_tick_keeps_its_row_and_moves_no_other() -> None:
    rig = Rig(30)
    rig.clock.late[10] = 60 * MS
    missed = count("spazio_samples_missed_total")
    block = rig.run()[0]
    assert column(block, "moment")[:5] == pytest.approx([42.0, 42.1, 42.26, 42.3, 42.4])
    assert count("spazio_samples_missed_total") == missed


def test_ticks_that_were_slept_through_are_null_counted_and_not_made_up_for() -> None:
    rig = Rig(30)
    rig.clock.late[10] = 330 * MS
    missed = count("spazio_samples_missed_total")
    first = rig.run()[0]
    moments = column(first, "moment")
    hole = moments.index(None)
    assert moments[hole : hole + 3] == [None] * 3
    assert moments.count(None) == 3
    assert first.samples == 10
    assert column(first, "passed")[hole + 3] == pytest.approx(0.43)
    assert count("spazio_samples_missed_total") == missed + 3


def test_a_block_whose_end_was_slept_through_is_handed_on_at_the_next_tick() -> None:
    rig = Rig(30)
    rig.clock.late[15] = 500 * MS
    first, second = rig.run()[:2]
    assert first.seq + 1 == second.seq
    assert column(first, "moment")[-1] is None
    assert column(second, "moment")[0] is None
    assert first.samples == second.samples == 10


def test_a_suspended_machine_skips_whole_blocks_and_misses_no_tick() -> None:
    rig = Rig(40)
    rig.clock.suspended[15] = 3600 * grid.SECOND
    missed = count("spazio_samples_missed_total")
    blocks = rig.run()
    assert [block.seq for block in blocks[:3]] == [42, 3642, 3643]
    assert count("spazio_samples_missed_total") == missed
    passed = [value for block in blocks for value in column(block, "passed") if value is not None]
    assert passed == pytest.approx([0.1] * len(passed))


def test_starved_seconds_are_skipped_and_their_ticks_counted() -> None:
    rig = Rig(40)
    rig.clock.late[15] = 5 * grid.SECOND
    missed = count("spazio_samples_missed_total")
    assert [block.seq for block in rig.run()[:2]] == [42, 47]
    assert count("spazio_samples_missed_total") == missed + 50


@pytest.mark.parametrize("step", [-7200, 86_400])
def test_a_step_of_the_wall_clock_moves_the_time_of_blocks_and_nothing_else(step: int) -> None:
    rig = Rig(40)

    def set_clock() -> None:
        rig.clock.offset += step * grid.SECOND

    rig.clock.at[12] = set_clock
    first, second = rig.run()[:2]
    assert second.at_us - first.at_us == (1 + step) * 1_000_000
    assert second.seq == first.seq + 1
    assert None not in first.values + second.values


def test_a_restarted_sampler_goes_on_counting() -> None:
    rig = Rig(30)
    last = rig.run()[-1].seq
    again = Rig(30)
    again.clock.now = rig.clock.now
    assert again.run()[0].seq > last


def test_other_intervals_fill_a_second_too() -> None:
    for interval, samples in ((1.0, 1), (0.5, 2), (0.01, 100)):
        block = Rig(3 * samples + 1, interval=interval).run()[0]
        assert (block.samples, block.step_us) == (samples, round(interval * 1e6))
        assert None not in block.values


def test_a_source_without_a_file_is_measured_once_a_second_and_holds_for_all_rows_that_were_taken() -> None:
    class Slow(Stopwatch):
        metrics = ("at", "since")
        path = None

    rig = Rig(40, [Stopwatch(), Slow()])
    rig.clock.late[10] = 330 * MS
    first, second = rig.run()[:2]
    expected = [None if moment is None else 42.9 for moment in column(first, "moment")]
    assert column(first, "at") == [None if value is None else pytest.approx(value) for value in expected]
    assert expected.count(None) == 3
    assert column(second, "since") == pytest.approx([1.0] * 10)


def test_stopping_is_noticed_after_the_sleep_in_which_it_was_asked_for() -> None:
    rig = Rig(7)
    rig.run()
    assert rig.clock.sleeps == 7


def test_a_tick_takes_one_sleep() -> None:
    rig = Rig(50)
    rig.run()
    assert rig.clock.now == 41 * grid.SECOND + 200 * MS + 50 * 100 * MS


def test_lateness_is_observed_against_the_tick_that_was_waited_for() -> None:
    rig = Rig(25)
    rig.clock.late[5] = 330 * MS
    rig.clock.suspended[7] = 60 * grid.SECOND
    before = count("spazio_sample_lateness_seconds_sum")
    rig.run()
    assert count("spazio_sample_lateness_seconds_sum") == pytest.approx(before + 0.33)


@pytest.mark.slow
def test_a_real_thread_samples_this_machine_and_stops() -> None:
    done = threading.Event()
    payloads = []

    def emit(_: int, payload: bytes) -> None:
        payloads.append(payload)
        done.set()

    sample = Sample(interval_seconds=0.05)
    real = sampler.Sampler(
        inventory.default(sample),
        node=sample.node_name,
        boot=inventory.boot_id(Path("/proc")),
        interval_seconds=sample.interval_seconds,
        emit=emit,
    )
    real.start()
    assert done.wait(10)
    real.stop()
    assert not any(thread.name == "spazio-sampler" for thread in threading.enumerate())
    block = codec.decode(SampleBlock, payloads[0])
    assert block.samples == 20
    assert any(value is not None for value in column(block, "memory_util"))
