"""CPU pressure that quotas cause: the formula, its bounds, and what becomes of it in the CPU metric."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.estimation import resource
from producers import source, throttle

ratios = st.floats(0, 1)
METRICS = {"cpu_util": 0, "cpu_pressure": 1, "cpu_throttled": 2}


def cpu(util: float, pressure: float, throttled: float, *, slowdown: float = 2.0, quotas: bool = True) -> float:
    """Return the CPU metric of one sample."""
    samples = np.array([[[util, pressure, throttled]]])
    made = resource.update(samples, METRICS, features=("cpu",), slowdown=slowdown, memory="memory_util", quotas=quotas)
    return float(made[0, 0, 0])


@pytest.mark.parametrize(
    ("pressure", "held", "busy", "waiting", "real"),
    [
        pytest.param(0.70, 0.70, 0.3, 0.0, 0.0, id="one busy thread with 0.3 CPU"),
        pytest.param(0.35, 0.70, 1.3, 0.0, 0.0, id="the same beside a busy thread, each on a CPU of its own"),
        pytest.param(0.50, 0.55, 2.0, 0.225, 0.225, id="the same beside two: they share a CPU while it runs"),
        pytest.param(1.00, 0.25, 2.0, 1.0, 1.0, id="the same beside four: the node is full with or without it"),
        pytest.param(1.00, 6.30, 2.0, 1.0, 1.0, id="ten held back nearly always, beside four busy threads"),
        pytest.param(0.80, 8.80, 0.5, 0.04, 0.04, id="ten held back nearly always, and little else"),
        pytest.param(1.00, 0.00, 2.0, 0.9, 1.0, id="no quota holds anything back"),
        pytest.param(0.30, 0.01, 1.6, 0.0, 0.29375, id="a quota that hardly matters explains hardly anything"),
    ],
)
def test_what_is_left_of_pressure_is_what_waits_for_a_cpu(
    pressure: float, held: float, busy: float, waiting: float, real: float
) -> None:
    assert pressure * (1 - throttle.quota_share(pressure, held, busy, waiting)) == pytest.approx(real, abs=1e-9)


@given(ratios, st.floats(0, 1000), st.floats(0, 128), ratios)
def test_the_share_is_a_ratio_and_never_more_than_quotas_held_back(
    pressure: float, held: float, busy: float, waiting: float
) -> None:
    share = throttle.quota_share(pressure, held, busy, waiting)
    assert 0 <= share <= 1
    assert held > 0 or share == 0
    if busy > 0:
        assert pressure * share <= held / busy + 1e-9


@given(ratios, st.floats(0, 100), st.floats(0.01, 128), ratios, ratios)
def test_the_more_threads_wait_for_a_cpu_the_less_is_owed_to_quotas(
    pressure: float, held: float, busy: float, first: float, other: float
) -> None:
    low, high = sorted((first, other))
    assert throttle.quota_share(pressure, held, busy, high) <= throttle.quota_share(pressure, held, busy, low)


def test_a_throttled_container_leaves_the_cpu_near_its_real_use() -> None:
    assert cpu(0.15, 0.70, 0.0) == pytest.approx(0.425)
    assert cpu(0.15, 0.70, 1.0) == pytest.approx(0.075)


def test_four_busy_threads_on_two_cpus_are_full_as_they_always_were() -> None:
    assert cpu(1.0, 1.0, 0.0) == 1.0
    assert cpu(1.0, 1.0, math.nan) == 1.0


def test_the_share_is_of_the_pressure_of_its_moment() -> None:
    assert cpu(0.4, 0.0, 0.9) == pytest.approx(0.2)
    assert cpu(0.4, 0.5, 0.5) == pytest.approx(0.325)


def test_a_kernel_without_pressure_leaves_utilisation_alone_whatever_the_share() -> None:
    assert cpu(0.6, math.nan, 0.5) == 0.6


def test_the_reference_variant_knows_no_quotas() -> None:
    assert cpu(0.15, 0.70, 1.0, quotas=False) == pytest.approx(0.425)


def test_a_block_without_the_column_is_as_one_that_owes_nothing() -> None:
    made = resource.update(
        np.array([[[0.5, 0.3]]]), {"cpu_util": 0, "cpu_pressure": 1}, features=("cpu",), slowdown=2.0, memory=""
    )
    assert made[0, 0, 0] == pytest.approx(0.4)


class StaticLimits:
    """Tells the same share always."""

    def __init__(self, share: float | None) -> None:
        self.share = share

    def quota_share(self) -> float | None:
        return self.share


@pytest.mark.parametrize("newest", [None, StaticLimits(None), StaticLimits(0.25)])
def test_the_source_tells_what_is_known(newest: StaticLimits | None) -> None:
    assert source.read(throttle.Throttle(newest), 1.0) == (newest.share if newest else None,)
