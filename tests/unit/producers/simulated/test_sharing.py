"""Simulated threads that share CPUs show what threads on a real kernel were seen to show."""

import numpy as np
import pytest

from processors.estimation import slowdown
from producers.simulated import sharing
from producers.simulated.sharing import Shared


def shared(cpus: int, demand: float, threads: float = 0.0) -> Shared:
    """Return what one node shows at its median moment; each is one number."""
    result = sharing.share(np.array([cpus]), np.array([[demand]]), np.array([[threads]]), np.array([[0.5]]))
    return Shared(*(column[0, 0] for column in result))


@pytest.mark.parametrize(
    ("threads", "pressure", "each"), [(1, 0.0, 1.0), (2, 0.0, 1.0), (3, 0.5, 2 / 3), (4, 1.0, 0.5), (8, 1.0, 0.25)]
)
def test_soaking_threads_take_whole_cores_and_wait_above_the_cores(threads: int, pressure: float, each: float) -> None:
    result = shared(2, 0.001, threads)
    assert (result.used, result.pressure, result.soaked) == pytest.approx((min(threads, 2), pressure, each), abs=0.005)
    assert result.runnable == threads


@pytest.mark.parametrize(("cpus", "load"), [(1, 0.3), (2, 0.707), (4, 0.835), (16, 0.951)])
def test_serving_work_alone_is_slowed_down_as_queueing_theory_says(cpus: int, load: float) -> None:
    result = shared(cpus, load * cpus)
    assert result.slowdown == pytest.approx(slowdown.mean(load, cpus), rel=0.001)
    assert (result.used, result.served) == pytest.approx((load * cpus, 1.0), rel=0.001)


def test_runnable_threads_are_demand_and_what_waits() -> None:
    moments = (np.arange(2000) + 0.5)[None, :] / 2000
    result = sharing.share(np.array([2]), np.full((1, 2000), 1.4), np.full((1, 2000), 1.0), moments)
    assert result.runnable.mean() == pytest.approx(1 + 1.4 * result.slowdown[0, 0], rel=0.01)
    assert np.all(np.diff(result.runnable) >= 0)


def test_one_service_is_slowed_down_by_soaking_threads_as_measured() -> None:
    # Measured on two CPUs with 0.31 cores: 1.0, 1.0, 2.0, 2.5 beside 0, 1, 2 and 4 threads.
    result = [shared(2, 0.31, threads).slowdown for threads in (0, 1, 2, 4)]
    assert result == pytest.approx([1.0, 1.1, 1.8, 2.9], abs=0.15)


def test_more_work_than_there_are_cpus_is_not_worked_off() -> None:
    result = shared(2, 3.0)
    assert (result.used, result.pressure) == pytest.approx((2.0, 1.0), abs=1e-3)
    assert result.served == pytest.approx(2 / 3, abs=1e-3)
    assert result.runnable > 60


def test_what_a_node_shows_depends_on_nobody_beside_it() -> None:
    random = np.random.default_rng(1)
    cpus, demand = np.array([2, 64, 2, 4]), random.uniform(0.1, 5.0, (4, 10))
    threads, moment = random.integers(0, 9, (4, 10)).astype(np.float64), random.random((4, 10))
    together = sharing.share(cpus, demand, threads, moment)
    for row in range(4):
        own = slice(row, row + 1)
        alone = sharing.share(cpus[own], demand[own], threads[own], moment[own])
        assert all(np.array_equal(a[0], b[row]) for a, b in zip(alone, together, strict=True))
