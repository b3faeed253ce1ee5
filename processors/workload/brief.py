"""Pods that do not live for a whole second: what their class takes, though none of them is seen to take it.

A pod's usage counts once it has run for a whole second, and a control group takes its account with it when it goes. So
of such pods two fragments are known: what those take that run at the end of a block, and by how much more than before
is used in no pod, which is what others took until they ended. Both together, over the pods that run at a time, are the
demand of one. It is rough, since starting and ending pods takes CPUs too, so it counts only where a class has had no
other pods for some seconds.
"""

import numpy as np
from numpy.typing import NDArray

from processors.estimation import level
from processors.workload.usage import CPU, MEMORY, Usage, over_slots, quotient

Array = NDArray[np.float64]

_SECONDS = 2.0  # without a pod whose usage counts: pods that have only begun take as long to be seen


def seconds(before: Array, usage: Usage) -> Array:
    """Return for how long (nodes, slots) each class has had pods without any that has run for a whole second."""
    passed = np.where((usage.brief[..., 0] > 0) & (usage.pods > 0), before + usage.span[:, None], before)
    return np.where(usage.counted[..., CPU] > 0, 0.0, passed)


def lost(pods: Array, demand: Array, for_seconds: Array, usage: Usage) -> Array:
    """Return the most cores (nodes, slots) that pods which have ended since the block before took in its time.

    Of a pod of which nothing is known that may be all of them. Before each brief pod another may have run unseen.

    Args:
        pods: (nodes, slots) that ran before.
        demand: (nodes, slots) of the mean pod; NaN: not known.
        for_seconds: What `seconds` says.
        usage: The block.
    """
    new = np.maximum(usage.counted[..., MEMORY] - usage.counted[..., CPU], 0.0)  # they ran for a part of it
    ended = np.maximum(pods + new - usage.pods, np.where(for_seconds > 0, new, 0.0))
    return ended * np.where(np.isnan(demand), usage.cores[:, None], demand)


def demand(for_seconds: Array, ended: Array, rest: level.State, usage: Usage, full: NDArray[np.bool_]) -> Array:
    """Return cores (nodes, slots) that the mean pod demands; NaN: that is not known, or not only from fragments.

    Args:
        for_seconds: What `seconds` says.
        ended: What `lost` says.
        rest: Share that is used in no pod.
        usage: The block.
        full: (nodes,) True: no CPU is idle, so pods want what they wait for, too.
    """
    alone = (for_seconds > _SECONDS) & (usage.brief[..., 0] > 0) & (usage.counted[..., CPU] <= 0)
    if not alone.any():
        return np.full(alone.shape, np.nan)
    others = over_slots(np.where(alone, 0.0, ended)[..., None])[:, 0]
    beyond = np.nan_to_num(usage.rest[:, CPU] - rest.mean[:, CPU] * usage.amount[:, CPU]) - others
    share = quotient(np.where(alone, usage.pods, 0.0), over_slots(np.where(alone, usage.pods, 0.0)[..., None]))
    waiting = np.where(full[:, None], usage.brief[..., 2], 0.0)
    taken = usage.brief[..., 1] + waiting + share * np.maximum(beyond, 0.0)[:, None]
    return np.where(alone, quotient(taken, usage.pods), np.nan)
