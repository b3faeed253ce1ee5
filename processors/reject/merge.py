"""Many nodes' directions in one, as PRONTO's aggregators merge them: pairwise, level by level.

That is DASM (CARICO dissertation, section 2.2.8). Each merge computes svd_r([U1 S1, U2 S2]). At full rank the order of
merges does not matter. Truncated, every merge loses what lies outside the directions it keeps, so the first singular
value comes out too small, more so than from other orders; `federated` therefore keeps every direction.
"""

import numpy as np

from processors.model import subspace
from processors.rows import table


def tree(states: subspace.State, *, rank: int) -> subspace.State:
    """Merge all nodes of a state into one, in pairs, level by level; of an odd number the last waits a level.

    Args:
        states: (nodes, ...), at least one node.
        rank: Directions to keep at each merge, at most those of `states`.

    Returns:
        A state of one node.
    """
    while states.sigma.shape[0] > 1:
        pairs = states.sigma.shape[0] // 2
        left, right, single = (
            table.take(states, np.arange(start, stop, 2))
            for start, stop in ((0, 2 * pairs), (1, 2 * pairs), (2 * pairs, states.sigma.shape[0]))
        )
        merged = subspace.merge_fast(left, right, weights=(1.0, 1.0), rank=rank)
        states = table.extend(merged, single)
    return states
