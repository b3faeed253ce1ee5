"""What pods of a class take in bursts: for some seconds of each minute or more, and hardly anything in between.

A level follows what pods take within seconds, so between two bursts it says what they take while they rest, and a bound
by it allows more pods than hold in the next burst. So a bound counts what they took in the last bursts: for the pods
that come what one of their class took, and for those that run what all of them took at a time, since bursts of several
classes may come in turn.

The demand of the mean pod is averaged over ten seconds. A burst comes back when that average has stayed at three
quarters of its highest value for five seconds, after it was below a third of it for as long, while the same pods ran. A
class works in bursts when that has happened twice. So neither noise from second to second is a burst, nor a change that
happens once, nor a load that more pods share. What pods took then is the highest mean of five seconds.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.workload.kind import SOAKING
from processors.workload.usage import CPU, Usage, over_slots

Array = NDArray[np.float64]

_AVERAGED_SECONDS, _LASTING_SECONDS, _TAKEN_SECONDS = 10.0, 5.0, 5.0
_HIGHEST_SECONDS, _SEEN_SECONDS = 1800.0, 600.0  # in which what was seen fades
_FALLEN, _BACK = 1 / 3, 0.75  # of the highest value
_SEEN, _MOST_SEEN = 1.4, 3.0  # bursts: two that came back within nine minutes; and no more of them count


class State(NamedTuple):
    """Bursts of classes.

    Attributes:
        mean: (nodes, slots) cores that the mean pod demands, averaged over some seconds, from 0 on.
        highest: (nodes, slots) highest such value, faded, but not while pods rest.
        low: (nodes, slots) seconds for which it has been below a third of that, while the same pods ran.
        high: (nodes, slots) seconds for which it has been at three quarters of it since then.
        seen: (nodes, slots) number of bursts that came back, faded.
        short: (nodes, slots) as `mean`, averaged over five seconds.
        taken: (nodes, slots) highest such value, faded as `highest`.
        soaking: (nodes, slots) how soaking it was in the last burst, 0..1.
        all: (nodes, 1) cores that all pods demand, averaged as `short`.
        most: (nodes, 1) highest such value, faded.
    """

    mean: Array
    highest: Array
    low: Array
    high: Array
    seen: Array
    short: Array
    taken: Array
    soaking: Array
    all: Array
    most: Array


def init(nodes: int, slots: int) -> State:
    """Return the state of classes of which nothing is known."""
    return State(*(np.zeros((nodes, slots)) for _ in range(8)), *(np.zeros((nodes, 1)) for _ in range(2)))


def clear(state: State, node: int, slot: int) -> None:
    """Forget what is known of a slot, in place."""
    for part in state[:-2]:
        part[node, slot] = 0.0


def grown(usage: Usage) -> NDArray[np.bool_]:
    """Return of which classes (nodes, slots) some pod has run for long enough to be done with its start."""
    return np.asarray(usage.counted[..., CPU] > usage.starting[..., 0] + usage.young[..., 0])


def update(
    state: State, demand: Array, frozen: NDArray[np.bool_], soaking: Array, usage: Usage, before: Array
) -> State:
    """Take in one block of each node.

    Args:
        state: Bursts so far.
        demand: (nodes, slots) cores that the mean pod demands; NaN: not known, or pods are starting.
        frozen: (nodes, slots) True: pods may get less than they demand, so they may not rest.
        soaking: (nodes, slots) how soaking the class is now, 0..1.
        usage: The block.
        before: (nodes, slots) pods that ran before it.
    """
    elapsed, cores, measured = np.maximum(usage.gap, 0.0)[:, None], np.nan_to_num(demand), ~np.isnan(demand)
    slow, quick = (-np.expm1(-usage.span / each)[:, None] for each in (_AVERAGED_SECONDS, _TAKEN_SECONDS))
    mean = state.mean + measured * slow * (cores - state.mean)
    short = state.short + measured * quick * (cores - state.short)
    resting = mean < _FALLEN * state.highest
    fade = np.exp(-elapsed / _HIGHEST_SECONDS)
    kept = np.where(resting | ~measured, 1.0, fade)
    highest = np.maximum(mean, mean + (state.highest - mean) * kept)
    above = measured & (mean > _BACK * highest)
    same = (usage.pods == before) & (usage.starting[..., 0] == 0) & (usage.brief[..., 0] == 0)
    span = np.where(measured, usage.span[:, None], 0.0)
    low = np.where(same, state.low + np.where(resting & ~frozen, span, 0.0), 0.0)
    high = np.where(same & above & (low >= _LASTING_SECONDS), state.high + span, 0.0)
    back = high >= _LASTING_SECONDS
    all_pods = state.all + quick * (over_slots((cores * usage.pods)[..., None]) - state.all)
    return State(
        mean=mean,
        highest=highest,
        low=np.where(back, 0.0, low),
        high=high,
        seen=np.minimum(state.seen * np.exp(-elapsed / _SEEN_SECONDS) + back, _MOST_SEEN),
        short=short,
        taken=np.maximum(short, short + (state.taken - short) * kept),
        soaking=np.where(above, soaking, state.soaking),
        all=all_pods,
        most=np.maximum(all_pods, all_pods + (state.most - all_pods) * fade),
    )


def of(state: State, cores: Array, soaking: NDArray[np.bool_]) -> tuple[Array, NDArray[np.bool_]]:
    """Return what a pod takes in a burst of its class.

    Args:
        state: Bursts.
        cores: (nodes, slots) cores that it demands now.
        soaking: (nodes, slots) True: its threads are always runnable now.

    Returns:
        Cores (nodes, slots), and whether its threads are always runnable then; of other classes what was given.
    """
    more = (state.seen > _SEEN) & (state.taken > cores)
    return np.where(more, state.taken, cores), np.where(more, state.soaking > SOAKING, soaking)
