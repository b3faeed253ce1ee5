"""What the Mid tier gets falls at once, rises no faster than the setting says, and is remembered over a restart."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.prediction.fold import PredictionPartition
from processors.prediction.tier import slew
from processors.rows import snapshot
from schemas.messages.prediction import FORMULAS
from tests.support.processors import telemetry
from tests.support.processors.telemetry import stored
from tests.unit.processors.prediction.fold.recordings import BEGIN, FAST, Stream, configured, predictions

HOUR_US = 3_600_000_000
CAPACITY = np.array([[10.0, 1e9]])
RECLAIM, SHIPPED = FORMULAS.index("reclaim"), FORMULAS.index("shipped")


def followed(cores: list[float], *, rise: float = 0.1, step_us: int = HOUR_US // 60) -> np.ndarray:
    """Return what is lent by each formula (steps, formulas) where this many cores are wanted, step by step."""
    state, lent = slew.init(1), []
    for number, wanted in enumerate(cores):
        asked = np.full((1, len(FORMULAS), 2), wanted)
        at_us = np.array([HOUR_US + number * step_us])
        state = slew.update(state, asked, CAPACITY, at_us, rise, 900.0)
        lent.append(state.lent[0, :, 0])
    return np.array(lent)


def test_a_dip_of_a_minute_does_not_lend_twice_within_two_hours() -> None:
    """2.0 cores, then none for a minute, then 2.1: a tenth of ten cores an hour comes back."""
    lent = followed([2.0] * 10 + [0.0] + [2.1] * 120)
    own = lent[:, RECLAIM]
    assert own[9] == 2.0
    assert own[10] == 0.0
    assert own[70] == pytest.approx(1.0)
    assert own[-1] == pytest.approx(2.0)
    np.testing.assert_array_equal(lent[11:, SHIPPED], 2.1)


@given(st.lists(st.floats(0, 10), min_size=2, max_size=50), st.floats(0.01, 10))
def test_it_is_never_above_what_is_wanted_and_never_rises_faster(cores: list[float], rise: float) -> None:
    own = followed(cores, rise=rise)[:, RECLAIM]
    assert (own <= np.array(cores)).all()
    assert (np.diff(own) <= rise * 10.0 / 60 + 1e-9).all()


def test_a_long_silence_and_a_clock_that_is_set_back_earn_no_more() -> None:
    assert followed([0.0, 9.0], step_us=HOUR_US * 5)[1, RECLAIM] == pytest.approx(0.25)
    assert followed([0.0, 9.0], step_us=-HOUR_US // 2)[1, RECLAIM] == 0.0


def stream() -> Stream:
    """Return a node whose prod pod uses little of what it asks for, from the moment that it is old enough."""
    requests = {"cpu": 3.0, "memory": 6e9}
    messages: Stream = [stored(telemetry.facts("n", "p", "w", 1, requests=requests, priority=9000))]
    for second in range(BEGIN, BEGIN + 120):
        messages.append(stored(telemetry.block("n", second, seq=second, cpu_util=0.2, memory_util=0.2)))
        pod = {"pod": "p", "cpu_cores": 0.5, "memory_bytes": 1e9}
        messages.append(stored(telemetry.usage("n", second + 1, [pod], seq=second)))
    return messages


@pytest.mark.slow
def test_a_restart_does_not_let_it_jump() -> None:
    settings = configured(**FAST | {"predict_model": "n_sigma", "predict_mid_rise": "10"})
    messages = stream()
    whole = PredictionPartition(settings, 0)
    predicted = predictions(whole.fold(messages))
    lent = [each.mid["reclaim"].cpu for each in predicted]
    assert 0 < lent[-1] < predicted[-1].reclaimable.cpu
    first, second = PredictionPartition(settings, 0), PredictionPartition(settings, 0)
    before = predictions(first.fold(messages[:120]))
    second.restore(first.snapshot())
    assert before + predictions(second.fold(messages[120:])) == predicted


@pytest.mark.slow
def test_a_state_from_before_the_bound_is_taken_over() -> None:
    settings = configured(**FAST | {"predict_model": "n_sigma"})
    old, new = PredictionPartition(settings, 0), PredictionPartition(settings, 0)
    old.fold(stream())
    header, arrays = snapshot.unpack(old.snapshot())
    new.restore(snapshot.pack(header, {name: each for name, each in arrays.items() if "slew" not in name}))
    assert new.nodes == 1
