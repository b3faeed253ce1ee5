"""The chain is pure: no array that goes in is written to, whatever a second brings."""

import copy

import numpy as np
import pytest

from processors.decode import COLUMNS
from processors.estimation import chain
from processors.estimation.chain import Batch, Params
from processors.estimation.global_model import GlobalModel
from processors.estimation.variant import choose
from schemas.settings import load

FORMS = [
    {},
    {"smoothing_form": "dynamic_ema"},
    {"model_variant": "carico"},
    {"model_variant": "carico", "estimate_form": "kalman_joint"},
]


@pytest.mark.parametrize("flags", FORMS, ids=str)
def test_no_second_writes_to_the_state_before_it_also_after_a_gap(flags: dict[str, str]) -> None:
    settings = load(flags, environ={})
    params = Params(settings, choose(settings))
    random, state = np.random.default_rng(4), chain.init(3, params)
    sizes = np.ones((3, len(params.features)))
    sizes[:, params.resources] = 4, 8 << 30
    for second in (0, 1, 2, 9, 10, 40):
        samples = random.random((3, 10, len(COLUMNS))) * 0.3
        samples[..., COLUMNS["pods"]] = second % 4
        batch = Batch(
            samples,
            np.full(3, 0.1),
            np.array([second, second, min(second, 2)]) * 1_000_000 + 900_000,
            sizes,
            np.array([False, second == 2, False]),
            np.full((3, 3), np.nan),
        )
        before = copy.deepcopy((state, batch))
        after, _ = chain.update(state, batch, GlobalModel(), params=params)
        np.testing.assert_equal((state, batch), before)
        state = after
