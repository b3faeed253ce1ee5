"""Cost and availability: against numpy's least squares, and the laws that scheduling relies on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processors.estimation import availability, slowdown
from processors.estimation.availability import Demand
from processors.estimation.cost import least_squares
from processors.partition.partition import Partition
from schemas.messages.estimate import Availability
from schemas.settings import load
from tests.support.processors import telemetry
from tests.support.processors.telemetry import block, stored

MEMORY = 300.0
ONE = np.ones(1)
GO = np.zeros(1, dtype=bool)


def learn(pods: np.ndarray, usage: np.ndarray, prior: float = 0.05) -> tuple[least_squares.State, least_squares.Cost]:
    state, assumed = least_squares.init(1, 1), np.full((1, 1), prior)
    for count, used in zip(pods, usage, strict=True):
        cost = least_squares.cost(state, assumed, deviation=0.5)
        state = least_squares.update(
            state, np.array([[used]]), np.array([count]), ONE, GO, cost.value, memory=MEMORY, level=1.0
        )
    return state, least_squares.cost(state, assumed, deviation=0.5)


def test_the_slope_equals_exponentially_weighted_least_squares_on_every_prefix() -> None:
    random = np.random.default_rng(3)
    pods = random.choice([0.0, 1.0, 8.0, 9.0], 60)  # never near their mean, where a second brings no news
    usage = 0.1 + 0.06 * pods + random.normal(0, 0.01, 60)
    fade = np.exp(-1 / MEMORY)
    for length in range(3, 60, 7):
        state, _ = learn(pods[:length], usage[:length])
        weights = fade ** np.arange(length - 1, -1, -1)
        design = np.stack((np.ones(length), pods[:length]), axis=1)
        root = np.sqrt(weights)[:, None]
        oracle = np.linalg.lstsq(design * root, usage[:length] * root[:, 0], rcond=None)[0]
        assert state.products[0, 0] / state.squares[0] == pytest.approx(oracle[1], rel=1e-9)


def test_cost_and_baseline_of_a_linear_node_are_found_and_the_prior_is_displaced() -> None:
    pods = np.repeat(np.arange(6), 20).astype(float)
    state, cost = learn(pods, 0.12 + 0.07 * pods, prior=0.02)
    assert cost.value[0, 0] == pytest.approx(0.07, rel=0.01)
    assert state.baseline[0, 0] == pytest.approx(0.12, abs=0.005)
    assert cost.prior[0, 0] < 0.01


def test_load_that_falls_while_pods_come_takes_nothing_from_what_is_assumed() -> None:
    pods = np.repeat(np.arange(6), 10).astype(float)
    _, cost = learn(pods, 0.8 - 0.1 * pods, prior=0.05)
    assert cost.value[0, 0] >= 0.05 * cost.prior[0, 0]


def test_without_pods_the_cost_is_the_prior_and_says_so() -> None:
    state, cost = learn(np.zeros(50), np.full(50, 0.3), prior=0.02)
    assert cost.value[0, 0] == pytest.approx(0.02)
    assert cost.prior[0, 0] == pytest.approx(1.0)
    assert state.baseline[0, 0] == pytest.approx(0.3)


@pytest.mark.slow
def test_an_hour_at_a_constant_pod_count_neither_loses_nor_spoils_the_cost() -> None:
    random = np.random.default_rng(5)
    pods = np.concatenate((np.repeat([0.0, 2, 4], 30), np.full(3600, 4.0)))
    usage = 0.1 + 0.08 * pods + random.normal(0, 0.01, len(pods))
    _, before = learn(pods[:90], usage[:90])
    _, after = learn(pods, usage)
    assert before.value[0, 0] == pytest.approx(0.08, rel=0.05)
    assert after.value[0, 0] == pytest.approx(0.08, rel=0.05)
    assert after.prior[0, 0] < 0.05


def test_a_new_workload_is_learned_within_the_memory() -> None:
    random = np.random.default_rng(6)
    pods = np.tile(np.repeat([1.0, 4.0, 2.0], 20), 20)
    costs = np.where(np.arange(len(pods)) < 600, 0.04, 0.09)
    _, cost = learn(pods, 0.1 + costs * pods + random.normal(0, 0.005, len(pods)))
    assert cost.value[0, 0] == pytest.approx(0.09, rel=0.2)


def test_a_held_or_unknown_second_leaves_the_evidence_alone() -> None:
    state, _ = learn(np.array([0.0, 1, 2, 1, 3]), np.array([0.1, 0.2, 0.3, 0.2, 0.4]))
    value = np.full((1, 1), 0.1)
    for pods, hold in ((np.array([9.0]), ~GO), (np.array([np.nan]), GO)):
        after = least_squares.update(state, np.array([[0.9]]), pods, ONE, hold, value, memory=MEMORY, level=1.0)
        for old, new in zip(state, after, strict=True):
            np.testing.assert_array_equal(old, new)


def room(
    usage: list[float], pods: float, churn: bool = False, cost: tuple[float, float] = (0.1, 0.05)
) -> availability.Room:
    wide = (1, 2)
    return availability.update(
        Demand(
            usage=np.array([usage]),
            baseline=np.array([usage]) - np.array([cost]) * pods,
            cost=np.array([cost]),
            variance=np.full(wide, 1e-5),
            spread=np.full(wide, 1e-6),
        ),
        np.array([pods]),
        np.array([churn]),
        headroom=np.zeros(2),
        most=110,
    )


@given(pods=st.integers(0, 6), cpu=st.floats(0.01, 0.3), memory=st.floats(0.01, 0.3))
@settings(deadline=None)
def test_one_more_equal_pod_lowers_availability_by_one_while_the_same_resource_binds(
    pods: int, cpu: float, memory: float
) -> None:
    before = room([cpu + 0.1 * pods, memory + 0.05 * pods], pods)
    after = room([cpu + 0.1 * (pods + 1), memory + 0.05 * (pods + 1)], pods + 1)
    assert before.binding == after.binding
    assert before.available[0] - after.available[0] == pytest.approx(1.0)


def test_the_scarcest_resource_binds_and_a_full_one_leaves_nothing() -> None:
    assert room([0.5, 0.1], 0).binding[0] == 0
    assert room([0.1, 0.9], 0).binding[0] == 1
    assert room([1.0, 0.1], 3).available[0] == 0


def test_the_pod_limit_binds_where_resources_would_allow_more() -> None:
    result = room([0.0, 0.0], 105, cost=(0.001, 0.001))
    assert result.binding[0] == availability.PODS
    assert result.available[0] == 5


def test_in_churn_fresh_usage_is_not_believed() -> None:
    spiked = room([0.95, 0.3], 2, churn=True)
    assert spiked.available[0] == pytest.approx((1 - 0.75) / 0.1 - 2)


def test_a_missing_resource_does_not_bind() -> None:
    assert room([np.nan, 0.5], 0).binding[0] == 1


def test_bounds_enclose_availability_and_hold_nine_times_in_ten() -> None:
    """Nodes with known truth: the share of lower bounds at or below it is at least nominal, within sampling error."""
    random = np.random.default_rng(11)
    nodes, seconds = 400, 240
    cost, base = random.uniform(0.03, 0.08, nodes), random.uniform(0.05, 0.2, nodes)
    state, prior = least_squares.init(nodes, 1), np.full((nodes, 1), 0.05)
    pods = random.integers(0, 6, nodes).astype(float)
    usage = np.zeros((nodes, 1))
    for second in range(seconds):
        if second % 20 == 0:
            pods = np.clip(pods + random.integers(-2, 3, nodes), 0, 7)
        usage = (base + cost * pods + random.normal(0, 0.01, nodes))[:, None]
        outcome = least_squares.cost(state, prior, deviation=0.5)
        state = least_squares.update(
            state, usage, pods, np.ones(nodes), np.zeros(nodes, bool), outcome.value, memory=MEMORY, level=1.0
        )
    outcome = least_squares.cost(state, prior, deviation=0.5)
    result = availability.update(
        Demand(usage, state.baseline, outcome.value, outcome.variance, state.noise),
        pods,
        np.zeros(nodes, bool),
        headroom=np.zeros(1),
        most=110,
    )
    truth = (1 - base) / cost - pods
    assert np.all(result.lower <= result.available)
    assert np.all(result.available <= result.upper)
    assert np.mean(result.lower <= truth) >= 0.87
    assert np.sqrt(np.mean((result.available - truth) ** 2)) < 0.6


def scripted(form: str) -> list[Availability]:
    """Run a node whose pods go from 1 to 5 and back; what it published, in order."""
    random = np.random.default_rng(7)
    variant = "carico" if form.startswith("kalman") else "default"
    flags = {"estimate_form": form, "model_variant": variant, "model_global_weight": "0"}
    partition = Partition(load(flags, environ={}), 0)
    messages: list[Availability] = []
    for second in range(260):
        outputs, _ = partition.fold([stored(telemetry.noisy("n", second, (second // 20) % 5 + 1, random))])
        messages += [item.message for item in outputs if isinstance(item.message, Availability)]
    return messages


@pytest.mark.slow
def test_the_default_estimator_finds_the_truth_of_a_scripted_node() -> None:
    """A pod takes 8 % of the CPUs on a baseline of 5 %, and 3 % of memory on 20 %."""
    rows = scripted("least_squares")
    for last in [row for row in rows if row.seq > rows[-1].seq - 20]:
        truth = min((slowdown.share(2.0, 4) - 0.05) / 0.08, (1 - 0.2) / 0.03) - last.pods
        assert last.available == pytest.approx(truth, abs=0.5)
        assert last.lower <= truth


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize("form", ["kalman_dual", "kalman_joint", "kalman_delta"])
def test_the_reference_estimators_stay_within_the_possible(form: str) -> None:
    """Their signal shrinks as the model grows, so they are not exact; they must be sane all the same."""
    for row in scripted(form):
        assert 0 <= row.lower <= row.available <= row.upper <= 110 - row.pods
        assert row.cost > 0


def test_load_that_is_no_pod_lowers_availability_and_its_end_restores_it_within_five_seconds() -> None:
    partition = Partition(load({}, environ={}), 0)
    seen: dict[int, Availability] = {}
    for second in range(60):
        cpu, memory = (0.9 if 20 <= second < 30 else 0.1), (0.9 if 40 <= second < 50 else 0.1)
        outputs, _ = partition.fold([stored(block("n", second, cpu_util=cpu, cpu_pressure=cpu, memory_util=memory))])
        for item in outputs:
            if isinstance(item.message, Availability):
                seen[second] = item.message

    def at(second: int) -> Availability:
        return seen[max(present for present in seen if present <= second)]

    idle = at(19)
    assert at(29).binding == "cpu"
    assert at(29).available < 0.7 * idle.available
    assert at(35).available == pytest.approx(idle.available, rel=0.03)
    assert at(49).binding == "memory"
    assert at(49).available < 0.7 * idle.available
    assert at(55).available == pytest.approx(idle.available, rel=0.03)
    assert at(55).binding == idle.binding
