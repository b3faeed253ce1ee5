"""Projections spike as the published detector says, above a floor, and windows go where their directions go."""

import numpy as np

from processors.reject import spike
from processors.smoothing import zscore

SERIES = np.fromstring(
    "1 1 1.1 1 0.9 1 1 1.1 1 0.9 1 1.1 1 1 0.9 1 1 1.1 1 1 1 1 1.1 0.9 1 1.1 1 1 0.9 1 1.1 1 1 1.1 1 0.8 0.9 1 1.2 "
    "0.9 1 1 1.1 1.2 1 1.5 1 3 2 5 3 2 1 1 1 0.9 1 1 3 2.6 4 3 3.2 2 1 1 0.8 4 4 2 2.5 1 1 1",
    sep=" ",
)
PEAKS = [45, *range(47, 52), *range(58, 64), *range(67, 71)]


def spikes_of(series: np.ndarray, *, floor: float = 0.0, lag: int = 30, influence: float = 0.0) -> np.ndarray:
    """Feed (values, nodes, directions) one by one."""
    state = spike.init(*series.shape[1:], lag=lag)
    marks = []
    for values in series:
        state, result = spike.update(state, values, threshold=5, influence=influence, floor=floor)
        marks.append(result)
    return np.stack(marks)


def test_the_public_series_has_its_published_peaks_in_every_direction_of_every_node() -> None:
    series = SERIES[:, np.newaxis, np.newaxis] * np.array([[1.0, -1.0], [0.5, 3.0]])
    marks = spikes_of(series)
    for node, direction in np.ndindex(2, 2):
        assert np.flatnonzero(marks[:, node, direction]).tolist() == PEAKS
    assert (marks[PEAKS, 0, 1] == -1).all()


def test_one_value_at_a_time_is_the_whole_series_at_once() -> None:
    marks = spikes_of(SERIES[:, np.newaxis, np.newaxis], influence=0.3, lag=9)[:, 0]
    whole = zscore.update(zscore.init(1, lag=9), SERIES[np.newaxis], threshold=5, influence=0.3)[1]
    assert np.array_equal(marks.T, whole)


def test_rounding_on_an_idle_node_is_no_spike_and_a_real_departure_is() -> None:
    rng = np.random.default_rng(1)
    series = rng.choice([0.0, 1e-17, -1e-17], (200, 20, 3), p=[0.98, 0.01, 0.01])
    assert spikes_of(series, lag=10).any()
    assert not spikes_of(series, lag=10, floor=0.02).any()
    series[150] += 0.021
    assert (spikes_of(series, lag=10, floor=0.02)[150] == 1).all()


def test_a_missing_projection_is_no_spike_and_changes_nothing() -> None:
    state = spike.init(1, 2, lag=3)
    for value in (1.0, 1.1, 0.9):
        state, _ = spike.update(state, np.full((1, 2), value), threshold=3, influence=0, floor=0)
    after, marks = spike.update(state, np.array([[np.nan, 9.0]]), threshold=3, influence=0, floor=0)
    assert marks.tolist() == [[0, 1]]
    assert np.array_equal(after.filtered[0, 0], state.filtered[0, 0])


def test_a_window_judges_once_it_is_full() -> None:
    state, messages = spike.init(1, 1, lag=3), []
    for value in (1.0, np.nan, 1.1, 0.9):
        messages.append(spike.judged(state).item())
        state, _ = spike.update(state, np.array([[value]]), threshold=3, influence=0, floor=0)
    assert messages == [False] * 4
    assert spike.judged(state).item()


def test_windows_follow_their_directions_and_are_emptied_for_new_ones() -> None:
    windows = spike.State(np.arange(12.0).reshape(2, 3, 2))
    source = np.array([[1, 0, 2], [2, 2, 0]])
    kept = np.array([[True, True, True], [True, False, True]])
    moved = spike.follow(windows, source, kept)
    assert moved.filtered[0].tolist() == [[2, 3], [0, 1], [4, 5]]
    assert moved.filtered[1, [0, 2]].tolist() == [[10, 11], [6, 7]]
    assert spike.judged(moved).tolist() == [[True, True, True], [True, False, True]]
