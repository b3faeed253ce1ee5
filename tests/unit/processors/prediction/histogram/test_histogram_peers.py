"""Histograms against those of the peers and against true percentiles."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.prediction.histogram import bucket, elementary, histogram
from processors.prediction.histogram.bucket import Options
from tests.unit.processors.prediction.histogram.filled import BEGAN, CORES, HOUR, fill, read, same, samples


class Peer:
    """One histogram as the peers' code does it, a bucket and a sample at a time."""

    def __init__(self, options: Options, half_life: int) -> None:
        self.options, self.half_life = options, half_life
        self.weights = [0.0] * options.count
        self.total, self.low, self.high = 0.0, options.count - 1, 0
        self.reference = -62_135_596_800

    def shift(self, to: int) -> None:
        since = to + 62_135_596_800
        rest = since % self.half_life
        to = to - rest if 2 * rest < self.half_life else to + self.half_life - rest
        factor = math.ldexp(1.0, max(math.floor((self.reference - to) / self.half_life + 0.5), -5000))
        for bucket_index in range(self.low, self.high + 1):
            self.weights[bucket_index] *= factor
        self.total *= factor
        self.trim()
        self.reference = to

    def trim(self) -> None:
        while self.weights[self.low] < self.options.epsilon and self.low < self.options.count - 1:
            self.low += 1
        while self.weights[self.high] < self.options.epsilon and self.high > 0:
            self.high -= 1

    def amount(self, weight: float, at: int) -> float:
        if at > self.reference + 100 * self.half_life:
            self.shift(at)
        return weight * float(elementary.exp2((at - self.reference) / self.half_life))

    def add(self, value: float, weight: float, at: int) -> None:
        amount, bucket_index = self.amount(weight, at), int(self.options.find(value))
        self.weights[bucket_index] += amount
        self.total += amount
        if self.weights[bucket_index] >= self.options.epsilon:
            self.low, self.high = min(self.low, bucket_index), max(self.high, bucket_index)

    def percentile(self, fraction: float) -> float:
        if self.weights[self.low] < self.options.epsilon:
            return 0.0
        partial, bucket_index = 0.0, self.low
        while bucket_index < self.high:
            partial += self.weights[bucket_index]
            if partial >= fraction * self.total:
                break
            bucket_index += 1
        return float(self.options.starts[min(bucket_index + 1, self.options.count - 1)])


SMALL = bucket.exponential(20, 0.5, 1.5, 1e-4)
step = st.tuples(
    st.floats(-1, 40),
    st.sampled_from([0.0, 1e-5, 0.1, 1.0, 7.5]),
    st.sampled_from([-30 * HOUR, -HOUR, 0, 60, 61, HOUR, 9 * HOUR, 120 * HOUR]),
)
rows_of_steps = st.lists(st.lists(st.tuples(step, step), min_size=1, max_size=12), min_size=1, max_size=4).map(
    lambda rows: [[pair[index] for pair in row] for row in rows for index in (0, 1)]
)


def play(rows: list[list[Any]], peers: list[Peer]) -> histogram.State:
    """Give the same steps, one of each row at a time, to the peers and to a state of as many rows."""
    state, clocks = histogram.init(len(rows), SMALL), [BEGAN] * len(rows)
    for number in range(max(map(len, rows))):
        values, weights, at = np.full(len(rows), np.nan), np.zeros(len(rows)), np.zeros(len(rows))
        for row, steps in enumerate(rows):
            if number < len(steps):
                values[row], weights[row], later = steps[number]
                clocks[row] += later
                at[row] = clocks[row]
                peers[row].add(float(values[row]), float(weights[row]), clocks[row])
        state = histogram.add(state, values, weights, at, options=SMALL, half_life_seconds=HOUR, compat=True)
    return state


def check(state: histogram.State, peers: list[Peer]) -> None:
    fractions = [-1, 0, 0.3, 0.9, 0.98, 1, 2]
    result = histogram.percentile(state, fractions, options=SMALL, compat=True)
    for row, peer in enumerate(peers):
        assert state.weights[row].tolist() == peer.weights
        assert (state.total[row], state.low[row], state.high[row]) == (peer.total, peer.low, peer.high)
        assert result[row].tolist() == [peer.percentile(fraction) for fraction in fractions]


@pytest.mark.slow
@given(rows_of_steps)
def test_in_compat_many_rows_are_to_the_bit_what_peers_make_of_each(rows: list[list[Any]]) -> None:
    peers = [Peer(SMALL, HOUR) for _ in rows]
    state = play(rows, peers)
    check(state, peers)


@pytest.mark.slow
@given(samples)
def test_by_default_percentiles_are_those_of_the_peers_while_nothing_is_old(result: list[Any]) -> None:
    dated = sorted(((value, weight, BEGAN + at) for value, weight, at in result), key=lambda each: each[2])
    state = fill(dated, CORES, 12 * HOUR)
    assert same(state, fill(dated, CORES, 12 * HOUR, compat=True))
    fractions = [0, 0.6, 0.9, 0.95, 0.98, 1]
    assert read(state, fractions, CORES) == read(state, fractions, CORES, compat=True)


@given(st.lists(st.floats(0, 500), min_size=1, max_size=60), st.floats(0.01, 1))
def test_a_percentile_is_at_least_the_true_one_and_at_most_a_bucket_above(values: list[float], share: float) -> None:
    state = fill([(value, 1.0, 0) for value in values], CORES, None)
    true = sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]
    assert true * (1 - 1e-12) <= read(state, [share], CORES)[0] <= true * (1.05 + 1e-12) + CORES.first
