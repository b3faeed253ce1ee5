"""The dissertation's global model: local models merged as they arrive, the old against the new as N - 1 : 1.

One queue takes the place of PRONTO's tree of aggregators (CARICO dissertation, section 4.3, with the square roots of
eq 3.6). A node's stationary share is its share of arrivals, so frequent reporters count for more, and the newest
report weighs about e times one that is N arrivals old. It is kept to compare with; `keyed_sum` has none of this.
"""

import numpy as np
import numpy.typing as npt

from processors.model import subspace


def update(state: subspace.State, arrivals: subspace.State, *, nodes: int) -> subspace.State:
    """Merge local models into the global one in order of arrival.

    Args:
        state: Global model, with a nodes axis of 1; `subspace.init` before any arrival.
        arrivals: Local models along the nodes axis, first arrival first.
        nodes: N, number of nodes in the cluster.

    Returns:
        The global model at the rank it had.

    Raises:
        ValueError: `nodes` is below 1.
    """
    if nodes < 1:
        raise ValueError(f"nodes is {nodes}; a cluster that sends models has at least 1")
    weights = ((1 - 1 / nodes) ** 0.5, (1 / nodes) ** 0.5)
    for index in range(arrivals.sigma.shape[0]):
        local = subspace.State(arrivals.basis[index : index + 1], arrivals.sigma[index : index + 1])
        state = subspace.merge_fast(state, local, weights=weights, rank=state.sigma.shape[1])
    return state


def moment(state: subspace.State) -> npt.NDArray[np.float64]:
    """Return the mean second moment (features, features) that the global model stands for."""
    mean: npt.NDArray[np.float64] = subspace.moment(state)[0]
    return mean
