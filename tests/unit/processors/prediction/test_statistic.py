"""Statistics of groups and pods: single-precision weights read what double-precision ones read, in half the room."""

import numpy as np
import pytest

from processors.prediction import statistic
from processors.prediction.histogram import bucket, histogram
from processors.prediction.node import Nodes
from processors.rows import table
from schemas.sections.prediction import Predict
from schemas.settings import Settings

SETTINGS = Predict()
GIB = float(1 << 30)


@pytest.mark.slow
def test_percentiles_are_those_of_double_precision_histograms() -> None:
    rng, rows = np.random.default_rng(3), 40
    state, exact = statistic.init(rows), histogram.init(rows, bucket.KOORDINATOR_CPU)
    for number in range(3000):  # 25 hours of half minutes, so that weights span two half-lives
        cores, at = rng.gamma(2.0, 1.0, rows), 1_000_000.0 + 30.0 * number
        usage = np.stack([cores, cores * GIB], axis=1)
        statistic.add(state, np.arange(rows), usage, np.full(rows, round(at * 1e6)), SETTINGS)
        exact = histogram.add(
            exact, cores, 1.0, at, options=bucket.KOORDINATOR_CPU, half_life_seconds=SETTINGS.half_life_cpu_seconds
        )
    assert state.cpu.weights.dtype == np.float32
    np.testing.assert_allclose(state.cpu.weights, exact.weights, rtol=1e-5)
    shares = [0.5, 0.9, 0.95, 0.98, 1.0]
    read = histogram.percentile(state.cpu, shares, options=bucket.KOORDINATOR_CPU)
    np.testing.assert_array_equal(read, histogram.percentile(exact, shares, options=bucket.KOORDINATOR_CPU))


def test_imported_weights_beyond_single_precision_keep_their_shape() -> None:
    empty = statistic.init(1)
    heavy = histogram.init(1, bucket.KOORDINATOR_CPU)
    heavy.weights[0, [3, 50]], heavy.total[0] = (1e200, 3e200), 4e200
    taken = statistic.of(heavy, empty.memory, empty.moments)
    ends = bucket.KOORDINATOR_CPU.ends
    read = histogram.percentile(taken.cpu, [0.2, 0.3], options=bucket.KOORDINATOR_CPU)
    assert read[0].tolist() == [ends[3], ends[50]]


def test_what_is_stored_is_read_back_to_the_last_bit() -> None:
    state = statistic.init(2)
    statistic.add(state, np.arange(2), np.array([[0.3, GIB], [np.nan, 2 * GIB]]), np.full(2, 10**12), SETTINGS)
    again = statistic.load(statistic.dump(state, "x."), "x.")
    for name, part in table.flatten(state).items():
        np.testing.assert_array_equal(table.flatten(again)[name], part)


@pytest.mark.parametrize(("kind", "most"), [("node", 30_000), ("pod", 2_000)])
def test_a_node_takes_at_most_30_kb_and_a_pod_2_kb(kind: str, most: int) -> None:
    nodes = Nodes(Settings())
    count = 64
    for number in range(count):
        nodes.slot(f"node-{number}")
    nodes.extend(count)
    kept = (nodes._state, nodes._groups) if kind == "node" else (nodes._pods,)
    size = sum(part.nbytes for state in kept for part in table.flatten(state).values())
    rows = len(nodes._state.windows) if kind == "node" else len(nodes._pods.moments.at_us)
    assert rows == count
    assert size / rows <= most
