"""All strategies keep the same promises, alone and together; a walk through their folder finds each of them."""

import copy
import importlib
import inspect
import pkgutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.sections.placement import Extender
from schemas.sections.ranking import STRATEGIES, Term, terms
from sinks.extender import strategy as package
from sinks.extender.candidate import Candidates
from sinks.extender.strategy import combine, registry
from sinks.extender.strategy.combine import Chosen
from sinks.extender.strategy.protocol import Strategy
from tests.support.extender import candidates

SETTINGS = Extender(resources=("cpu=1", "memory=2", "example.com/gpu=3"), shape=("0=2", "40=10", "100=0"))
EACH = registry.make(terms("+".join(STRATEGIES)), SETTINGS)
often = settings(deadline=None, max_examples=80, derandomize=True)
each = pytest.mark.parametrize("strategy", [strategy for strategy, _ in EACH], ids=lambda strategy: strategy.name)
seeds = st.integers(0, 2**32)


def implementations() -> set[type]:
    """Return every class in the strategies' folder that offers what `Strategy` does."""
    modules = [
        importlib.import_module(info.name)
        for info in pkgutil.walk_packages(package.__path__, "sinks.extender.strategy.")
    ]
    classes = {each for module in modules for _, each in inspect.getmembers(module, inspect.isclass)}
    return {
        each
        for each in classes
        if each is not Strategy and each.__module__.startswith("sinks.extender.strategy.") and hasattr(each, "score")
    }


def test_every_strategy_in_the_folder_has_a_name_in_the_settings_and_no_other_name_is_there() -> None:
    assert set(registry.NAMES) == set(STRATEGIES)
    assert [strategy.name for strategy, _ in EACH] == list(STRATEGIES)
    assert {type(strategy) for strategy, _ in EACH} == implementations()


def test_a_strategy_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"strategies: best is none of availability, weighted"):
        registry.make({"best": Term(1.0, {})}, SETTINGS)


def test_a_resource_without_a_weight_has_weight_1() -> None:
    assert Extender.model_validate({"resources": "cpu,memory=3"}).resources == ("cpu=1", "memory=3")


@pytest.mark.parametrize("resources", ["", "=2", "cpu=0", "cpu=101", "cpu=", "cpu=x"])
def test_resources_that_cannot_be_weighed_are_refused(resources: str) -> None:
    with pytest.raises(ValueError, match="resources"):
        Extender.model_validate({"resources": resources})


def made(text: str) -> dict[str, float | dict[str, float] | object]:
    """Return the attributes of the one strategy that a text chooses."""
    ((strategy, _),) = registry.make(terms(text), SETTINGS)
    return vars(strategy)


def test_options_replace_the_settings_for_one_profile_or_pod() -> None:
    assert made("weighted(price=3;fit=1)")["weights"] == {"price": 3.0, "fit": 1.0}
    assert made("weighted(available=0.99)=2") | {"weights": 0} == {
        "weights": 0,
        "high_priority": 1000,
        "available": 0.99,
    }
    assert made("weighted(available=0.99)")["weights"] == made("weighted")["weights"]
    assert made("most_allocated(cpu=5)")["resources"] == {"cpu": 5.0}
    assert made("least_allocated")["resources"] == {"cpu": 1.0, "memory": 2.0, "example.com/gpu": 3.0}
    both = made("requested_to_capacity_ratio(memory=2;0=10;100=0)")
    assert (both["resources"], both["shape"]) == ({"memory": 2.0}, [(0, 100), (100, 0)])
    assert made("requested_to_capacity_ratio(0=0;50=5)")["resources"] == made("least_allocated")["resources"]
    assert made("target_load_packing(target=0.7)")["target"] == 0.7


@pytest.mark.parametrize(
    "text",
    [
        "weighted(speed=1)",
        "weighted(fit=-1)",
        "weighted(fit=nan)",
        "weighted(available=1.5)",
        "weighted(fit)",
        "weighted(fit=1",
        "most_allocated(cpu=0)",
        "requested_to_capacity_ratio(100=0;0=10)",
        "requested_to_capacity_ratio(0=11)",
        "requested_to_capacity_ratio(cpu=0)",
        "target_load_packing(target=1)",
        "availability(fit=1)",
        "peak(target=0.5)",
        "weighted()()",
        "weighted=nan",
    ],
)
def test_options_that_a_strategy_does_not_take_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not|are|is "):
        terms(text)


@pytest.mark.slow
@each
@given(seed=seeds)
@often
def test_a_score_is_a_number_from_0_to_100_whatever_is_unknown(strategy: Strategy, seed: int) -> None:
    pod, nodes = candidates.arbitrary(seed)
    score = strategy.score(pod, nodes)
    assert score.shape == (7,)
    assert ((score >= 0) & (score <= 100)).all()


@pytest.mark.cases
@each
@given(seed=seeds)
@often
def test_a_node_is_refused_if_and_only_if_something_is_needed_there(strategy: Strategy, seed: int) -> None:
    pod, nodes = candidates.arbitrary(seed)
    refused = np.zeros(7, dtype=np.bool_)
    for reason, mask in strategy.refuse(pod, nodes).items():
        assert mask.dtype == np.bool_
        assert not any(letter.isdigit() for letter in reason)
        refused |= mask
    assert [bool(strategy.needs(pod, nodes, index)) for index in range(7)] == refused.tolist()


@pytest.mark.slow
@pytest.mark.cases
@each
@given(seed=seeds)
@often
def test_neither_the_order_of_nodes_nor_asking_twice_matters(strategy: Strategy, seed: int) -> None:
    pod, nodes = candidates.arbitrary(seed)
    before = copy.deepcopy((pod, nodes))
    score, refused = strategy.score(pod, nodes), strategy.refuse(pod, nodes)
    order = np.random.default_rng(seed).permutation(7).tolist()
    turned = candidates.taken(nodes, order)
    np.testing.assert_allclose(strategy.score(pod, turned), score[order], atol=1e-9)
    for reason, mask in strategy.refuse(pod, turned).items():
        assert mask.tolist() == refused[reason][order].tolist()
    np.testing.assert_equal(vars_of(nodes), vars_of(before[1]))
    assert pod == before[0]


@each
def test_a_node_of_which_nothing_is_known_passes_and_is_last(strategy: Strategy) -> None:
    pod, nodes = candidates.pod({"cpu": 1.0, "memory": 1.0}), candidates.nodes(2)
    assert strategy.refuse(pod, nodes) == {}
    assert strategy.score(pod, nodes).tolist() == [0, 0]


@each
def test_no_nodes_are_no_fault(strategy: Strategy) -> None:
    pod, nodes = candidates.pod({"cpu": 1.0}), candidates.nodes(0)
    assert strategy.refuse(pod, nodes) == {}
    assert strategy.score(pod, nodes).shape == (0,)


def test_the_combined_score_is_the_weighted_mean() -> None:
    """Room for 10 pods scores 50; a node that is half requested scores 50 by most and, a fourth requested, 25."""
    pod = candidates.pod()
    nodes = candidates.nodes(
        2, room=[10, 30], allocatable={"cpu": 4, "memory": 8}, requested={"cpu": [2, 1], "memory": [4, 2]}
    )
    chosen = registry.make(terms("availability=3+most_allocated"), Extender())
    total, scores = combine.score(chosen, pod, nodes)
    assert {name: values.tolist() for name, values in scores.items()} == {
        "availability": [50, 75],
        "most_allocated": [50, 25],
    }
    assert total.tolist() == [50, (3 * 75 + 25) / 4]


def test_what_two_strategies_refuse_for_one_reason_is_refused_once() -> None:
    pod = candidates.pod({"cpu": 2.0})
    nodes = candidates.nodes(3, room=[0.4, 5, 5], allocatable={"cpu": [8, 1, 8]})
    chosen = registry.make(terms("availability+most_allocated+least_allocated"), Extender())
    refused = {reason: mask.tolist() for reason, mask in combine.refuse(chosen, pod, nodes).items()}
    assert refused == {
        "the node is smaller than what the pod requests": [False, True, False],
        "no room for another pod of its kind": [True, False, False],
        "less cpu is left than the pod requests": [False, True, False],
    }
    assert combine.needs(chosen, pod, nodes, 1) == [
        "a node with more of what the pod requests",
        "cpu: the pod requests 2 cores, 1 cores of 1 cores are left",
    ]
    assert combine.needs(chosen, pod, nodes, 2) == []


def test_nothing_can_be_ranked_without_a_strategy() -> None:
    nothing: Chosen = []
    with pytest.raises(ValueError, match="at least one is needed"):
        combine.score(nothing, candidates.pod(), candidates.nodes(1))


def vars_of(nodes: Candidates) -> dict[str, object]:
    return {name: getattr(nodes, name) for name in Candidates.__slots__}
