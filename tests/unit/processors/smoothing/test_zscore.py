"""Spikes are found where the published example has them, and nowhere else."""

import numpy as np

from processors.smoothing import zscore

SERIES = np.fromstring(
    "1 1 1.1 1 0.9 1 1 1.1 1 0.9 1 1.1 1 1 0.9 1 1 1.1 1 1 1 1 1.1 0.9 1 1.1 1 1 0.9 1 1.1 1 1 1.1 1 0.8 0.9 1 1.2 "
    "0.9 1 1 1.1 1.2 1 1.5 1 3 2 5 3 2 1 1 1 0.9 1 1 3 2.6 4 3 3.2 2 1 1 0.8 4 4 2 2.5 1 1 1",
    sep=" ",
)[np.newaxis]
PEAKS = [45, *range(47, 52), *range(58, 64), *range(67, 71)]


def test_the_public_series_of_74_points_has_its_published_peaks() -> None:
    assert SERIES.shape == (1, 74)
    spikes = zscore.update(zscore.init(1, lag=30), SERIES, threshold=5, influence=0)[1]
    assert np.flatnonzero(spikes[0] == 1).tolist() == PEAKS
    assert not (spikes == -1).any()


def test_a_series_upside_down_has_the_same_spikes_downwards() -> None:
    both = np.concatenate((SERIES, -SERIES))
    spikes = zscore.update(zscore.init(2, lag=30), both, threshold=5, influence=0)[1]
    assert np.array_equal(spikes[0], -spikes[1])


def test_cutting_a_series_into_calls_changes_nothing() -> None:
    state = zscore.init(1, lag=30)
    parts = []
    for part in np.split(SERIES, [1, 29, 31, 60], axis=1):
        state, spikes = zscore.update(state, part, threshold=5, influence=0.3)
        parts.append(spikes)
    whole = zscore.update(zscore.init(1, lag=30), SERIES, threshold=5, influence=0.3)[1]
    assert np.array_equal(np.concatenate(parts, axis=1), whole)


def test_a_missing_sample_is_no_spike_and_leaves_the_others_as_they_were() -> None:
    gappy = np.insert(SERIES, [10, 50], np.nan, axis=1)
    spikes = zscore.update(zscore.init(1, lag=30), gappy, threshold=5, influence=0)[1]
    assert spikes[0, 10] == spikes[0, 51] == 0
    given = zscore.update(zscore.init(1, lag=30), SERIES, threshold=5, influence=0)[1]
    assert np.array_equal(np.delete(spikes, [10, 51], axis=1), given)


def test_a_constant_series_has_no_spike_and_the_least_departure_from_it_has() -> None:
    series = np.append(np.full(40, 0.1), 0.1001)[np.newaxis]
    spikes = zscore.update(zscore.init(1, lag=10), series, threshold=3, influence=0)[1]
    assert not spikes[0, :-1].any()
    assert spikes[0, -1] == 1


def test_a_spike_of_full_influence_moves_the_mean_and_is_soon_the_normal_case() -> None:
    series = np.append(SERIES[0, :40], np.full(40, 5.0))[np.newaxis]
    deaf = zscore.update(zscore.init(1, lag=10), series, threshold=3, influence=0)[1]
    alert = zscore.update(zscore.init(1, lag=10), series, threshold=3, influence=1)[1]
    assert deaf[0, 40:].all()
    assert not alert[0, 45:].any()


def test_series_do_not_know_of_each_other() -> None:
    many = np.random.default_rng(1).standard_normal((37, 60))
    together = zscore.update(zscore.init(37, lag=9), many, threshold=2, influence=0.3)[0]
    for index in range(37):
        alone = zscore.update(zscore.init(1, lag=9), many[index : index + 1], threshold=2, influence=0.3)[0]
        assert np.array_equal(alone.filtered[0], together.filtered[index])
