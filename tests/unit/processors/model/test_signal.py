"""The signal is finite, continuous, and says truly what binds; the literal form is kept beside it."""

import numpy as np
import pytest
from numpy.typing import NDArray

from processors.model import capacity_signal, direction
from processors.model.direction import Direction

Array = NDArray[np.float64]
MAX_PODS = 110


def workload(size: float, *vector: float) -> Direction:
    return Direction(np.array([size]), np.array([vector]), np.zeros(1), np.ones(1))


def k_and_binding(expected: Direction, *usage: float, form: str = "update", headroom: float = 0.0) -> tuple[float, int]:
    signal = getattr(capacity_signal, form)(
        expected, np.array([usage]), headroom=np.full(len(usage), headroom), max_pods=MAX_PODS
    )
    return signal.k[0], signal.binding[0]


@pytest.mark.parametrize("usage", [1.0, 1.2])
def test_a_full_feature_binds_at_zero_even_if_the_workload_does_not_use_it(usage: float) -> None:
    k, binding = k_and_binding(workload(0.5, 1.0, 0.0), 0.1, usage)
    assert (k, binding) == (0.0, 1)


def test_an_idle_node_without_a_workload_has_room_for_its_pod_limit() -> None:
    idle = direction.leading(np.zeros((1, 2, 2)))
    for form in ("update", "reference"):
        assert k_and_binding(idle, 0.0, 0.0, form=form)[0] == MAX_PODS


def test_the_sign_of_the_eigenvector_does_not_matter() -> None:
    assert k_and_binding(workload(0.4, -1.0, -0.0), 0.5, 0.2) == k_and_binding(workload(0.4, 1.0, 0.0), 0.5, 0.2)


def test_headroom_is_not_given_away() -> None:
    assert k_and_binding(workload(0.5, 0.8, 0.6), 0.0, 0.7, headroom=0.0)[0] == pytest.approx(1.0)
    assert k_and_binding(workload(0.5, 0.8, 0.6), 0.0, 0.7, headroom=0.15)[0] == pytest.approx(0.5)


@pytest.mark.parametrize("form", ["update", "reference"])
def test_a_missing_feature_never_binds_and_nothing_known_gives_nothing(form: str) -> None:
    expected = workload(0.5, 0.8, 0.6)
    k, binding = k_and_binding(expected, np.nan, 0.7, form=form)
    assert binding == 1
    assert k == k_and_binding(expected, 0.0, 0.7, form=form)[0]
    k, binding = k_and_binding(expected, np.nan, np.nan, form=form)
    assert np.isnan(k)
    assert binding == -1


def test_the_signal_moves_little_when_load_direction_or_usage_do() -> None:
    angles, usage = np.linspace(0, np.pi / 2, 20001), np.array([0.5, 0.9])
    vectors = np.stack((np.cos(angles), np.sin(angles)), axis=1)
    sizes = np.full(20001, 0.3)
    ones = np.ones(20001)
    k = capacity_signal.update(
        Direction(sizes, vectors, ones, ones), np.tile(usage, (20001, 1)), headroom=np.zeros(2), max_pods=MAX_PODS
    ).k
    assert np.abs(np.diff(k)).max() < 0.05
    assert np.isfinite(k).all()


def test_half_the_load_fits_twice_as_often_and_the_literal_root_breaks_that() -> None:
    whole, half = workload(0.4, 1.0), workload(0.2, 1.0)
    assert k_and_binding(half, 0.0)[0] == 2 * k_and_binding(whole, 0.0)[0] == 5.0
    literal = k_and_binding(half, 0.0, form="reference")[0] / k_and_binding(whole, 0.0, form="reference")[0]
    assert literal == pytest.approx(2**0.5)


def test_the_literal_form_is_the_least_room_over_the_root_of_sigma_times_u() -> None:
    k, binding = k_and_binding(workload(0.25, 0.8, 0.6), 0.2, 0.7, form="reference")
    assert k == pytest.approx(0.3 / (0.5 * 0.6))
    assert binding == 1


def test_the_literal_form_ignores_a_full_feature_that_the_workload_does_not_use() -> None:
    assert k_and_binding(workload(0.25, 1.0, 0.0), 0.5, 1.0, form="reference") == (1.0, 0)
    assert k_and_binding(workload(0.25, 1.0, 0.0), 1.5, 0.0, form="reference") == (0.0, 0)


def test_conflicting_load_lowers_the_signal_and_complementary_load_raises_it() -> None:
    """As CARICO dissertation, section 3.4.1, expects of a correct implementation."""
    light = workload(0.3, 0.6, 0.8)
    assert k_and_binding(workload(0.6, 0.6, 0.8), 0.5, 0.1)[0] < k_and_binding(light, 0.5, 0.1)[0]
    assert k_and_binding(workload(0.3, 0.1, 0.99), 0.5, 0.1)[0] > k_and_binding(light, 0.5, 0.1)[0]
