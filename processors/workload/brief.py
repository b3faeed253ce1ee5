"""Pods that do not live for a whole second: what their class takes, though none of them is seen to take it.

A pod's usage counts once it has run for a whole second, and a control group takes its account with it when it goes. So
of such pods two fragments are known: what those take that run at the end of a block, and by how much more than before
is used in no pod, which is what others took until they ended. Both together, over the pods that run at a time, are the
demand of one. It is rough, since starting and ending pods takes CPUs too, and something else may have begun to run on
the host. So it counts only where a class has had no other pods for some seconds, and no pod takes more than a few
times what one was seen to take in a second that it did not live to the end of.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.estimation import level
from processors.estimation.level import quotient
from processors.workload.usage import CPU, Usage, absent, over_slots

Array = NDArray[np.float64]

_SECONDS = 2.0  # without a pod whose usage counts: pods that have only begun take as long to be seen
_TIMES = 4.0  # what one takes, over the most that was seen of one: a pod is seen for a part of its second


class State(NamedTuple):
    """What is known of brief pods; (nodes, slots).

    Attributes:
        seconds: For how long the class has had pods without any that has run for a whole second.
        most: Most cores that one was seen to take, faded.
    """

    seconds: Array
    most: Array


def init(nodes: int, slots: int) -> State:
    """Return the state of nodes that have run no such pods."""
    return State(np.zeros((nodes, slots)), np.zeros((nodes, slots)))


def clear(state: State, node: int, slot: int) -> None:
    """Forget a slot, in place."""
    state.seconds[node, slot] = state.most[node, slot] = 0.0


def update(state: State, usage: Usage, fade: Array, present_us: NDArray[np.int64]) -> State:
    """Take in one block of each node.

    Args:
        state: What was known.
        usage: The block.
        fade: (nodes, 1) what is left of evidence since the block before.
        present_us: (nodes, slots) when each class last had pods.
    """
    number, cores = usage.brief[..., 0], usage.brief[..., 1]
    before = np.where(absent(usage, present_us), 0.0, state.seconds)
    passed = np.where(number > 0, before + usage.span[:, None], before)
    return State(
        seconds=np.where(usage.counted[..., CPU] > 0, 0.0, passed),
        most=np.maximum(state.most * fade, quotient(cores, number)),
    )


def lost(pods: Array, demand: Array, state: State, usage: Usage) -> Array:
    """Return the most cores (nodes, slots) that pods which have ended since the block before took in its time.

    Before each brief pod another may have run unseen. Where nothing is known of what they take, that may be all cores;
    but not of a class that was never seen before, or pods of ever new classes would hide what is used in no pod.

    Args:
        pods: (nodes, slots) that ran before.
        demand: (nodes, slots) of the mean pod; NaN: not known.
        state: What is known of brief pods, after the block.
        usage: The block.
    """
    new = usage.brief[..., 0]  # they ran for a part of it
    ended = np.maximum(pods + new - usage.pods, np.where(state.seconds > 0, new, 0.0))
    unknown = np.where(state.seconds > usage.span[:, None], usage.cores[:, None], 0.0)
    return ended * np.where(np.isnan(demand), unknown, demand)


def demand(state: State, ended: Array, rest: level.State, usage: Usage, full: NDArray[np.bool_]) -> Array:
    """Return cores (nodes, slots) that the mean pod demands; NaN: that is not known, or not only from fragments.

    Args:
        state: What is known of brief pods, after the block.
        ended: What `lost` says.
        rest: Share that is used in no pod.
        usage: The block.
        full: (nodes,) True: no CPU is idle, so pods want what they wait for, too.
    """
    number, cores, waiting = usage.brief[..., 0], usage.brief[..., 1], usage.brief[..., 2]
    alone = (state.seconds > _SECONDS) & (number > 0)
    if not alone.any():
        return np.full(alone.shape, np.nan)
    number = np.where(alone, number, 0.0)
    others = over_slots(np.where(alone, 0.0, ended)[..., None])[:, 0]
    beyond = np.nan_to_num(usage.rest[:, CPU] - rest.mean[:, CPU] * usage.amount[:, CPU]) - others
    share = quotient(number, over_slots(number[..., None])) * np.maximum(beyond, 0.0)[:, None]
    taken = quotient(cores + np.where(full[:, None], waiting, 0.0) + share, number)
    return np.where(alone, np.minimum(taken, np.minimum(_TIMES * state.most, usage.cores[:, None])), np.nan)
