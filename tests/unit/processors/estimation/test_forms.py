"""All forms of smoothing, model and estimator keep the same promises; they are found in the packages' folders."""

import copy
import itertools
from collections.abc import Iterator
from types import ModuleType
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray

import processors.estimation.cost
import processors.model
import processors.smoothing
from processors.estimation import availability
from processors.estimation.availability import Demand
from processors.estimation.cost import registry as estimators
from processors.estimation.cost.protocol import Estimate, Estimator, Second
from processors.estimation.variant import choose
from processors.model import registry as models
from processors.model.protocol import Model
from processors.rows import table
from processors.smoothing import registry as smoothings
from processors.smoothing.protocol import Smoothing
from schemas import settings as all_settings
from schemas.sections import estimation, section
from tests.support import members

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
NODES, SECONDS = 11, 12
PACKAGES: dict[type, tuple[ModuleType, tuple[str, ...]]] = {
    Smoothing: (processors.smoothing, smoothings.NAMES),
    Model: (processors.model, models.NAMES),
    Estimator: (processors.estimation.cost, estimators.NAMES),
}
VARIANTS: tuple[str, ...] = get_args(estimation.ModelSettings.model_fields["variant"].annotation)
each_smoothing = pytest.mark.parametrize("name", smoothings.NAMES)
each_model = pytest.mark.parametrize("name", models.NAMES)
each_estimator = pytest.mark.parametrize("name", estimators.NAMES)
in_groups = pytest.mark.parametrize("groups", [2, 5, NODES])


def named_by(section: type[section.Section]) -> tuple[str, ...]:
    """Return the names that a section's `form` may have; its annotation is a literal, or none."""
    literal, _ = get_args(section.model_fields["form"].annotation)
    return get_args(literal)


def estimator(name: str) -> Estimator:
    for variant in VARIANTS:
        try:
            return estimators.make(name, variant, estimation.Estimate())
        except ValueError:
            continue
    raise AssertionError(f"{name} goes with no variant")


@pytest.mark.parametrize("protocol", PACKAGES, ids=lambda protocol: protocol.__name__)
def test_every_class_that_offers_a_protocol_is_registered_and_has_a_file_of_its_name(protocol: type) -> None:
    package, names = PACKAGES[protocol]
    classes = members.members_of(package, protocol)
    assert [vars(member)["name"] for member in classes] == sorted(names)
    assert [member.__module__.rpartition(".")[2] for member in classes] == sorted(names)


def test_settings_name_every_form_and_no_other() -> None:
    assert set(named_by(estimation.Smoothing)) == set(smoothings.NAMES)
    assert set(named_by(estimation.Estimate)) == set(estimators.NAMES)
    assert set(models.OF_VARIANT) == set(VARIANTS)
    assert set(models.OF_VARIANT.values()) == set(models.NAMES)


def test_a_name_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match="smoothing form: best is none of running_median, dynamic_ema"):
        smoothings.make("best", estimation.Smoothing())
    with pytest.raises(ValueError, match="model: best is none of second_moment, subspace"):
        models.make("best", estimation.ModelSettings())
    with pytest.raises(ValueError, match="estimate form: best is none of composed, least_squares"):
        estimators.make("best", "default", estimation.Estimate())


@pytest.mark.parametrize("variant", VARIANTS)
@each_estimator
@pytest.mark.parametrize("smoothing", smoothings.NAMES)
def test_settings_refuse_exactly_what_the_estimators_do_not_go_with(variant: str, name: str, smoothing: str) -> None:
    flags = {"model_variant": variant, "estimate_form": name, "smoothing_form": smoothing}
    if variant in estimator(name).variants:
        chosen = choose(all_settings.load(flags, environ={}))
        assert (chosen.estimator.name, chosen.smoothing.name) == (name, smoothing)
        assert chosen.model.name == models.OF_VARIANT[variant]
        return
    with pytest.raises(ValueError, match=f"estimate form {name} .*--model-variant carico"):
        all_settings.load(flags, environ={})
    with pytest.raises(ValueError, match=f"{name} does not work with the {variant} model; valid are .*{name} on "):
        estimators.make(name, variant, estimation.Estimate())


def smoothed(name: str, rows: Rows, cuts: tuple[int, ...] = (), *, seed: int = 3) -> list[Array]:
    """Return smoothed samples, and the arrays of the state after them, of some nodes; samples come in several calls."""
    random = np.random.default_rng(seed)
    samples = random.random((NODES, 40, 3))
    samples[random.random(samples.shape) < 0.1] = np.nan
    form, step = smoothings.make(name, estimation.Smoothing()), np.where(np.arange(NODES) % 2, 0.1, 0.2)
    state, parts = form.init(len(rows), 3), []
    for begin, end in itertools.pairwise((0, *cuts, 40)):
        before = copy.deepcopy(state)
        after, part = form.update(state, samples[rows, begin:end], step[rows])
        np.testing.assert_equal(state, before)
        state = after
        parts.append(part)
    return [np.concatenate(parts, axis=1), *state]


@each_smoothing
@in_groups
def test_smoothing_is_the_same_for_any_groups_of_nodes_and_samples_and_writes_to_no_input(
    name: str, groups: int
) -> None:
    whole = smoothed(name, np.arange(NODES))
    assert whole[0].shape == (NODES, 40, 3)
    np.testing.assert_equal(smoothed(name, np.arange(NODES), (1, 7, 8, 30)), whole)
    for rows in np.array_split(np.random.default_rng(groups).permutation(NODES), groups):
        np.testing.assert_equal(smoothed(name, rows), [array[rows] for array in whole])


@each_smoothing
def test_no_smoothed_sample_depends_on_more_older_ones_than_the_reach_says(name: str) -> None:
    form = smoothings.make(name, estimation.Smoothing())
    step, samples = np.full(1, 0.1), np.random.default_rng(1).random((1, 30, 1))
    spoiled = samples.copy()
    spoiled[:, :5] += 0.5
    left, right = (form.update(form.init(1, 1), series, step)[1] for series in (samples, spoiled))
    differs = np.flatnonzero(left != right)
    assert differs.max() == (4 + form.reach if form.reach else 29)


def modelled(name: str, rows: Rows) -> Iterator[Array]:
    random = np.random.default_rng(5)
    form = models.make(name, estimation.ModelSettings())
    state = form.init(len(rows), 4)
    for second in range(SECONDS):
        batch, elapsed = random.random((NODES, 10, 4)), random.uniform(0, 3, NODES)
        batch[random.random(batch.shape) < 0.02] = np.nan
        elapsed = np.full(NODES, np.inf) if second == 0 else elapsed
        before = copy.deepcopy(state)
        after, moment = form.update(state, batch[rows], elapsed[rows])
        np.testing.assert_equal(state, before)
        state = after
        np.testing.assert_array_equal(moment, moment.transpose(0, 2, 1))
        yield from (moment, *state)


@each_model
@in_groups
def test_a_model_is_the_same_for_any_groups_of_nodes_and_writes_to_no_input(name: str, groups: int) -> None:
    whole = list(modelled(name, np.arange(NODES)))
    for rows in np.array_split(np.random.default_rng(groups).permutation(NODES), groups):
        np.testing.assert_equal(list(modelled(name, rows)), [array[rows] for array in whole])


@each_model
def test_a_model_of_a_moment_stands_for_that_moment(name: str) -> None:
    form = models.make(name, estimation.ModelSettings())
    rows = np.random.default_rng(2).random((NODES, 6, 3))
    moment = rows.transpose(0, 2, 1) @ rows
    kept = form.update(form.of_moment(moment), np.zeros((NODES, 1, 3)), np.zeros(NODES))[1]
    np.testing.assert_allclose(kept, moment, rtol=1e-12)


def seconds() -> Iterator[tuple[Second, Estimate]]:
    """Yield seconds of nodes, some of them settling, full or of unknown signal, with the room by least squares."""
    random = np.random.default_rng(8)
    for second in range(SECONDS):
        pods = random.integers(0, 9, NODES).astype(np.float64)
        cost = random.uniform(0.02, 0.2, (NODES, 2))
        usage = np.minimum(0.05 + cost * pods[:, None], 1.0)
        settling = random.random(NODES) < 0.2
        wide = np.full((NODES, 2), 1e-5)
        demand = Demand(usage, usage - cost * pods[:, None], cost, wide, wide)
        room = availability.update(demand, pods, settling, headroom=np.zeros(2), most=110)
        signal = np.where(random.random(NODES) < 0.1, 0.0, 20 - 0.7 * pods + random.normal(0, 0.1, NODES))
        most = np.full(NODES, 110.0)
        full = random.random(NODES) < 0.1
        measured = Second(np.full(NODES, second == 0), signal, pods, settling, full, most)
        yield measured, Estimate(room, random.random(NODES))


def estimated(name: str, rows: Rows) -> Iterator[Any]:
    form = estimator(name)
    state = form.init(np.ones(len(rows)), np.ones(len(rows)))
    for second, estimate in seconds():
        given = table.take(second, rows), table.take(estimate, rows)
        before = copy.deepcopy((state, given))
        after, answer = form.update(state, *given)
        np.testing.assert_equal((state, given), before)
        state = after
        room = answer.room
        assert ((room.lower <= room.available) & (room.available <= room.upper)).all()
        assert ((room.available >= 0) & (room.upper <= 110 - given[0].pods)).all()
        assert ((answer.prior >= 0) & (answer.prior <= 1)).all()
        yield from (*room, answer.prior, *state)


@pytest.mark.cases
@each_estimator
@in_groups
def test_an_estimate_is_the_same_for_any_groups_of_nodes_bounded_and_writes_to_no_input(name: str, groups: int) -> None:
    whole = list(estimated(name, np.arange(NODES)))
    for rows in np.array_split(np.random.default_rng(groups).permutation(NODES), groups):
        np.testing.assert_equal(list(estimated(name, rows)), [array[rows] for array in whole])
