"""What pods of a class take in bursts: for some seconds of each minute or more, and hardly anything in between.

A level follows what pods take within seconds, so between two bursts it says what they take while they rest, and more of
them seem to fit than hold in the next burst. So what they took in the last bursts counts. The demand of the mean pod is
averaged over a few seconds, since what lasts for a second only is noise of each pod. A class works in bursts once that
average has come back to three quarters of its highest value after it had fallen below half of it. A change that happens
once is none, so what a pod took while it started, or a job before it ended, does not count.

What is expected is the level, unless bursts are more than twice as high; a bound takes the bursts in any case.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.workload.usage import Usage

Array = NDArray[np.float64]

_AVERAGED_SECONDS = 5.0
_HIGHEST_SECONDS, _RETURN_SECONDS = 1800.0, 600.0  # in which what was seen fades
_FALLEN, _BACK = 0.5, 0.75  # of the highest value
_SEEN = 0.2  # of the evidence of one return: sixteen minutes after it
_PRONOUNCED = 2.0  # times what is expected


class State(NamedTuple):
    """Bursts of classes; every array is (nodes, slots).

    Attributes:
        mean: Cores that the mean pod demands, averaged over some seconds, from 0 on.
        highest: Highest such value, faded.
        fallen: 1: it has fallen below half of that since; else 0.
        returns: How often it came back after it had fallen, faded.
        soaking: 1: threads of its pods were always runnable in the last burst; else 0.
    """

    mean: Array
    highest: Array
    fallen: Array
    returns: Array
    soaking: Array


def init(nodes: int, slots: int) -> State:
    """Return the state of classes of which nothing is known."""
    return State(*(np.zeros((nodes, slots)) for _ in State._fields))


def clear(state: State, node: int, slot: int) -> None:
    """Forget what is known of a slot, in place."""
    for part in state:
        part[node, slot] = 0.0


def update(state: State, demand: Array, frozen: NDArray[np.bool_], soaking: NDArray[np.bool_], usage: Usage) -> State:
    """Take in one block of each node.

    Args:
        state: Bursts so far.
        demand: (nodes, slots) cores that the mean pod demands; NaN: not known.
        frozen: (nodes, slots) True: pods may get less than they demand, so only more than before says something.
        soaking: (nodes, slots) True: threads of the class are always runnable now.
        usage: The block.
    """
    demand = np.where(frozen, np.fmax(demand, state.mean), demand)
    passed = np.where(np.isnan(demand), 0.0, -np.expm1(-usage.span / _AVERAGED_SECONDS)[:, None])
    elapsed = np.maximum(usage.gap, 0.0)[:, None]
    mean = state.mean + passed * (np.nan_to_num(demand) - state.mean)
    highest = np.maximum(mean, mean + (state.highest - mean) * np.exp(-elapsed / _HIGHEST_SECONDS))
    high = mean > _BACK * highest
    returns = state.returns * np.exp(-elapsed / _RETURN_SECONDS) + state.fallen * high
    fallen = np.where(mean < _FALLEN * highest, 1.0, np.where(high, 0.0, state.fallen))
    return State(mean, highest, fallen, returns, np.where(high, soaking, state.soaking))


class Bursts(NamedTuple):
    """What counts for a class that works in bursts; elsewhere what was given.

    Attributes:
        cores: (nodes, slots) cores that a pod is expected to demand.
        most: (nodes, slots) cores that it may demand.
        soaking: (nodes, slots) True: threads of the class are always runnable while it works.
    """

    cores: Array
    most: Array
    soaking: NDArray[np.bool_]


def of(state: State, cores: Array, soaking: NDArray[np.bool_]) -> Bursts:
    """Return what counts where classes demand so many cores (nodes, slots) now, and are of this kind."""
    seen = state.returns > _SEEN
    most = np.where(seen, np.maximum(state.highest, cores), cores)
    return Bursts(np.where(most > _PRONOUNCED * cores, most, cores), most, np.where(seen, state.soaking > 0, soaking))
