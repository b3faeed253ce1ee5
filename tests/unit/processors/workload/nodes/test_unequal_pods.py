"""`lower` where pods of one class differ: those that come may be the large ones."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from processors.partition.partition import Partition
from schemas.settings import load
from tests.unit.processors.workload.nodes.small_node import GIB, by_cores, folded, pod, seconds

NODES, PODS, DEVIATION = 60, 12, 0.5
Array = NDArray[np.float64]


def by_memory(size: Array) -> Array:
    """Return the shares of 8 GiB, less what the kubelet keeps from them, that so many bytes are."""
    return np.asarray(size / (8 * GIB - 100 * 2**20))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mean", "rest", "share", "made"),
    [
        pytest.param(0.06, 0.1, by_cores, lambda cores: (cores,), id="cores"),
        pytest.param(0.2 * GIB, 0.5 * GIB, by_memory, lambda size: (0.01, size), id="memory"),
    ],
)
def test_lower_holds_where_pods_of_a_class_differ(
    mean: float, rest: float, share: Callable[[Array], Array], made: Callable[[float], tuple[float, ...]]
) -> None:
    random = np.random.default_rng(7)

    def drawn(count: int) -> Array:
        return np.asarray(mean * random.lognormal(-(DEVIATION**2) / 2, DEVIATION, count))

    of_node = {f"n{number}": drawn(PODS) for number in range(NODES)}
    streams = [
        seconds(name, 0, 90, [pod(each, "shop/web", *made(size)) for each, size in enumerate(sizes)])
        for name, sizes in of_node.items()
    ]
    settings = load({"model_global_weight": "0", "estimate_report_seconds": "0.5"}, environ={})
    held, ratio = [], []
    for name, row in folded(Partition(settings, 0), *streams).items():
        free = 1 - share(np.array([rest]))[0] - share(of_node[name]).sum()
        fits = [int(np.searchsorted(np.cumsum(share(drawn(400))), free, side="right")) for _ in range(100)]
        held.append(np.mean(row.lower <= np.array(fits)))
        ratio.append(row.lower / np.median(fits))
    assert np.mean(held) >= 0.8
    assert np.median(ratio) >= 0.6
