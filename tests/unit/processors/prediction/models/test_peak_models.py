"""All peak models keep the same promises; they are found in their folder, so that none can be left out."""

import copy
import pkgutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from processors.prediction import models, moments
from processors.prediction.models import protocol, registry
from processors.prediction.models.protocol import Evidence, PeakModel
from processors.prediction.scoring import conformal
from processors.prediction.tier import group
from processors.rows import table
from schemas.messages.prediction import GROUPS
from schemas.sections.prediction import PEAK_MODELS, Predict

NAN = np.nan
PODS = 9
SETTINGS = Predict()
FILES = sorted(
    module.name for module in pkgutil.iter_modules(models.__path__) if module.name not in {"protocol", "registry"}
)
often = settings(deadline=None, max_examples=60, derandomize=True)
each = pytest.mark.parametrize("model", [registry.MODELS[name] for name in FILES], ids=FILES)
seeds = st.integers(0, 2**32)


def learned(rows: int, rng: np.random.Generator) -> moments.State:
    """Return what was seen of rows, some of which nothing was seen of."""
    state = moments.init(rows, 2)
    for number in range(4):
        usage = np.where(rng.random((rows, 2)) < 0.4, NAN, rng.gamma(2.0, 1.0, (rows, 2)))
        at_us = np.full(rows, (number + 1) * 30_000_000)
        state = moments.update(state, usage, at_us, half_life_seconds=3600.0)
    return state


def arbitrary(seed: int, nodes: int = 3, pods: int = PODS) -> Evidence:
    """Return evidence of which anything may be unknown; in the last node's case, which pods there are."""
    rng = np.random.default_rng(seed)

    def filled(*shape: int) -> NDArray[np.float64]:
        return np.where(rng.random(shape) < 0.2, NAN, rng.gamma(2.0, 1.0, shape))

    lists_pods = np.arange(nodes) < nodes - 1
    percentile = filled(nodes, group.COUNT, 2)
    percentile[~lists_pods, 1:] = NAN
    node = rng.integers(0, max(nodes - 1, 1), pods)
    return Evidence(
        size=rng.uniform(1.0, 8.0, (nodes, 2)),
        percentile=percentile,
        moments=learned(nodes * group.COUNT, rng),
        spread=conformal.Spread(
            filled(nodes, group.COUNT, 2), filled(nodes, group.COUNT, 2), filled(nodes, group.COUNT, 2)
        ),
        lists_pods=lists_pods,
        pods=protocol.Pods(
            row=group.row(node, rng.integers(0, 5, pods)),
            request=rng.gamma(2.0, 1.0, (pods, 2)),
            percentile=filled(pods, 2),
            moments=learned(pods, rng),
        ),
    )


def taken(evidence: Evidence, nodes: NDArray[np.intp]) -> Evidence:
    """Return the evidence of some nodes, in their order."""
    order = {int(node): number for number, node in enumerate(nodes)}
    own = [pod for pod, row in enumerate(evidence.pods.row) if int(row) // group.COUNT in order]
    pods = table.take(evidence.pods, np.array(own, dtype=np.intp))
    row = [order[int(row) // group.COUNT] * group.COUNT + int(row) % group.COUNT for row in pods.row]
    return Evidence(
        size=evidence.size[nodes],
        percentile=evidence.percentile[nodes],
        moments=table.take(evidence.moments, group.rows(nodes)),
        spread=table.take(evidence.spread, nodes),
        lists_pods=evidence.lists_pods[nodes],
        pods=pods._replace(row=np.array(row, dtype=np.intp)),
    )


def test_every_file_is_a_model_of_the_settings_and_has_its_name() -> None:
    assert sorted(PEAK_MODELS) == FILES
    assert [model.name for model in registry.MODELS.values()] == list(PEAK_MODELS)


@each
@given(seed=seeds)
@often
def test_a_peak_is_at_least_0_or_not_predicted(model: PeakModel, seed: int) -> None:
    peaks = model.peaks(arbitrary(seed), SETTINGS)
    assert peaks.shape == (3, len(GROUPS), 2)
    assert peaks.dtype == np.float64
    assert (np.isnan(peaks) | ((peaks >= 0) & np.isfinite(peaks))).all()


@pytest.mark.cases
@each
@given(seed=seeds)
@often
def test_a_node_is_predicted_the_same_alone_as_among_others_and_evidence_is_left_as_it_is(
    model: PeakModel, seed: int
) -> None:
    evidence = arbitrary(seed)
    before = copy.deepcopy(evidence)
    together = model.peaks(evidence, SETTINGS)
    for node in range(3):
        alone = model.peaks(taken(evidence, np.array([node])), SETTINGS)
        np.testing.assert_array_equal(alone[0], together[node])
    turned = model.peaks(taken(evidence, np.array([2, 0, 1])), SETTINGS)
    np.testing.assert_array_equal(turned, together[[2, 0, 1]])
    for name, values in table.flatten(evidence).items():
        np.testing.assert_array_equal(values, table.flatten(before)[name])


@each
def test_a_model_predicts_a_node_of_which_everything_is_known(model: PeakModel) -> None:
    """Or it would never be of use: one prod pod uses a core and a byte of four, all the time."""
    of_pod, seen = moments.init(1, 2), moments.init(group.COUNT, 2)
    for number in range(2):
        at_us = np.array([number + 1])
        of_pod = moments.update(of_pod, np.ones((1, 2)), at_us, half_life_seconds=3600.0)
        seen = moments.update(seen, np.ones((group.COUNT, 2)), at_us.repeat(group.COUNT), half_life_seconds=3600.0)
    ones = np.ones((1, group.COUNT, 2))
    pods = protocol.Pods(group.row(np.array([0]), np.array([1])), np.full((1, 2), 2.0), np.ones((1, 2)), of_pod)
    evidence = Evidence(
        size=np.full((1, 2), 4.0),
        percentile=ones,
        moments=seen,
        spread=conformal.Spread(ones / 4, ones / 100, ones),
        lists_pods=np.array([True]),
        pods=pods,
    )
    peaks = model.peaks(evidence, SETTINGS)
    assert ((peaks[0, [group.NODE, group.PROD]] >= 0.5) & (peaks[0, [group.NODE, group.PROD]] <= 4.0)).all()


@each
def test_no_nodes_are_no_fault(model: PeakModel) -> None:
    assert model.peaks(arbitrary(1, nodes=0, pods=0), SETTINGS).shape == (0, len(GROUPS), 2)


@given(seed=seeds)
@often
def test_the_second_version_of_n_sigma_is_below_neither_the_first_nor_its_pods(seed: int) -> None:
    evidence = arbitrary(seed)
    first, second = (registry.MODELS[name].peaks(evidence, SETTINGS) for name in ("n_sigma", "pods_n_sigma"))
    np.testing.assert_array_equal(np.fmax(first, second), second)
    own = registry.MODELS["pods_n_sigma"].peaks(evidence._replace(moments=moments.init(3 * group.COUNT, 2)), SETTINGS)
    np.testing.assert_array_equal(
        np.fmax(own, second)[:, group.PROD : group.SYSTEM], second[:, group.PROD : group.SYSTEM]
    )


@given(seed=seeds)
@often
def test_the_maximum_is_below_neither_of_its_two(seed: int) -> None:
    evidence = arbitrary(seed)
    both = [registry.MODELS[name].peaks(evidence, SETTINGS) for name in ("borg_default", "resource_central")]
    greatest = registry.MODELS["max"].peaks(evidence, SETTINGS)
    np.testing.assert_array_equal(greatest[:, 1:], np.fmax(*both)[:, 1:])
    np.testing.assert_array_equal(greatest[:, group.NODE], np.maximum(*both)[:, group.NODE])


def test_all_models_stand_in_the_order_of_the_settings() -> None:
    evidence = arbitrary(5)
    peaks = registry.peaks(evidence, SETTINGS)
    for number, name in enumerate(PEAK_MODELS):
        np.testing.assert_array_equal(peaks[:, :, number], registry.MODELS[name].peaks(evidence, SETTINGS))
