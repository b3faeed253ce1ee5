"""The law of slowdown: against a simulated queue, published values, and the limits that follow from it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processors.estimation import size, slowdown


@pytest.mark.parametrize(
    ("allowed", "shares"),
    [
        (2.0, {1: 0.5, 2: 0.707, 4: 0.835, 8: 0.909, 16: 0.951, 64: 0.986}),
        (1.5, {1: 0.333, 2: 0.577, 4: 0.747, 8: 0.854, 16: 0.918, 64: 0.976}),
        (1.2, {1: 0.167, 2: 0.408, 4: 0.616, 8: 0.762, 16: 0.858, 64: 0.953}),
    ],
)
def test_the_share_that_may_be_demanded_is_erlangs(allowed: float, shares: dict[int, float]) -> None:
    for cpus, share in shares.items():
        assert slowdown.share(allowed, cpus) == pytest.approx(share, abs=6e-4)


@given(cpus=st.integers(1, 300), demand=st.floats(0.01, 0.99))
@settings(deadline=None)
def test_the_share_is_the_inverse_of_the_mean(cpus: int, demand: float) -> None:
    allowed = slowdown.mean(demand, cpus)
    if 1.001 < allowed < 50:
        assert slowdown.share(allowed, cpus) == pytest.approx(demand, abs=1e-6)


def test_more_cpus_and_more_patience_allow_more_and_never_everything() -> None:
    for allowed in (1.1, 1.5, 2.0, 4.0):
        shares = [slowdown.share(allowed, cpus) for cpus in (1, 2, 4, 8, 16, 64, 1024, 65_536)]
        assert shares == sorted(shares)
        assert shares[-1] < 1
    assert slowdown.mean(1.0, 4) == float("inf")


@pytest.mark.parametrize("cpus", [513, 4096])
@pytest.mark.parametrize("demand", [0.0, 1e-9, 0.3, 0.9, 0.99, 0.999, 0.9999])
def test_the_mean_of_a_large_machine_is_that_of_the_recursion(cpus: int, demand: float) -> None:
    blocked, offered = 1.0, demand * cpus
    for server in range(1, cpus + 1):
        blocked = offered * blocked / (server + offered * blocked)
    waits = blocked / (1 - demand * (1 - blocked))
    assert slowdown.mean(demand, cpus) == pytest.approx(1 + waits / (cpus * (1 - demand)), rel=1e-12)


def test_each_size_that_a_node_may_claim_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []

    def mean(demand: float, cpus: int) -> float:
        computed.append(cpus)
        return 1 + demand

    monkeypatch.setattr(slowdown, "mean", mean)
    slowdown.share.cache_clear()
    sizes = np.arange(1.0, size.MOST_CPUS + 1)
    for _ in range(2):
        slowdown.cores(2.0, sizes)
        slowdown.queueing(2.0, sizes)
    slowdown.share.cache_clear()
    assert len(computed) == 2 * slowdown._STEPS * size.MOST_CPUS


@pytest.mark.slow
def test_the_mean_is_that_of_a_simulated_queue_that_shares_its_cpus() -> None:
    """Exponential work, Poisson arrivals, CPUs shared fairly: slowdown is the mean number of jobs over the demand."""
    random = np.random.default_rng(4)
    for cpus, demand in ((1, 0.5), (2, 0.7), (4, 0.8)):
        jobs, area, now = 0, 0.0, 0.0
        for _ in range(300_000):
            served = min(jobs, cpus)
            total = demand * cpus + served
            step = random.exponential(1 / total)
            area, now = area + jobs * step, now + step
            jobs += 1 if random.random() < demand * cpus / total else -1
        assert area / now / (demand * cpus) == pytest.approx(slowdown.mean(demand, cpus), rel=0.05)


def test_cores_of_machines_of_different_size_are_each_ones_own() -> None:
    cpus = np.array([2.0, 64.0, 2.0, 1.0])
    assert slowdown.cores(2.0, cpus) == pytest.approx([1.4142, 63.13, 1.4142, 0.5], abs=0.01)
