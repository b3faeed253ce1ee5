"""Which workload class the next pod is of, judged by what was started lately.

Starts come in bursts of one class (a deployment scales, a job fans out) or interleaved (a steady mix), and how sticky
they are is itself seen: r, the share of starts that were of the same class as the one before. The next pod is of the
class that was started last with probability r, else of one drawn from all starts of about an hour:

    w = r recent / sum recent + (1 - r) started / sum started

`recent` counts starts with a memory of 5 s, so that its quotient is the newest start or the newest few together;
`started` with a memory of an hour. r begins near what bursts show, three starts of four, and remembers about eight
starts. A start of another class than the one before may begin the next burst; two of them in a row take turns, so then
the repeats before them fade, too. A burst goes on soon or is over: r counts in full for two minutes after the newest
start, then less every second, and after ten minutes no more. Pods that run already when a node is first heard of count
as old starts, so that without any start the mix is that of the running pods. Nor does a start say anything after days:
a pod whose class has been started counts at least as a trace of one.

Only classes that have running pods take part, as long as any has: what is over does not come next. A container that
runs again is no start, nor is a pod of a DaemonSet or a static pod: no node is given a second one.

Each node counts its own starts; counts of nodes that are faded to the same time add up to those of the cluster.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NOBODY = -1

_RECENT_SECONDS = 5.0
_STARTED_SECONDS = 3600.0
_WHOLE_SECONDS, _OVER_SECONDS = 120.0, 600.0  # since the newest start, while r counts in full, and at all
_OLD = 1e-3  # weight among recent starts of a pod that ran before
_REPEATS, _TRANSITIONS = 0.75, 1.0
_KEPT = float(np.exp(-1 / 8))  # of what was remembered, at each start
_KEPT_IN_TURN = 0.4  # of repeats, at each start in turn
_LEAST = 1e-60  # starts; recent ones are not as few before the newest is too old to count
_TRACE = 1e-30  # starts that a running pod is, however long ago it was started
_EVER = 1e-90  # starts that are left of a class: it is one that may be started


class State(NamedTuple):
    """Starts of some nodes, faded.

    Attributes:
        started: (nodes, slots) starts of each class, with a memory of an hour.
        recent: (nodes, slots) the same with a memory of 5 s.
        repeats: (nodes,) starts of the same class as the one before, of the last few.
        transitions: (nodes,) starts that had one before, of the last few.
        latest: (nodes,) label of the class that was started last; NOBODY: none was.
        turned: (nodes,) 1 where that was another one than the class before, else 0.
    """

    started: Array
    recent: Array
    repeats: Array
    transitions: Array
    latest: NDArray[np.int64]
    turned: Array


def init(nodes: int, slots: int) -> State:
    """Return the state of nodes on which nothing was started."""
    return State(
        started=np.zeros((nodes, slots)),
        recent=np.zeros((nodes, slots)),
        repeats=np.zeros(nodes),
        transitions=np.zeros(nodes),
        latest=np.full(nodes, NOBODY, dtype=np.int64),
        turned=np.zeros(nodes),
    )


def faded(state: State, seconds: Array) -> State:
    """Return the state after so many seconds (nodes,)."""
    slow, fast = np.exp(-seconds / _STARTED_SECONDS), np.exp(-seconds / _RECENT_SECONDS)
    return state._replace(
        started=np.maximum(state.started * slow[:, None], np.minimum(state.started, _EVER)),
        recent=state.recent * fast[:, None],
        repeats=state.repeats * slow,
        transitions=state.transitions * slow,
    )


def update(state: State, label: NDArray[np.int64], more: Array, new: Array, first: NDArray[np.bool_]) -> State:
    """Count pods that were not there before.

    Args:
        state: Starts so far, faded to now.
        label: (nodes, slots) class of each slot.
        more: (nodes, slots) pods more than before, or fewer.
        new: (nodes, slots) pods that may have been started since.
        first: (nodes,) True: it is the node's first block, so they may be old.
    """
    came = np.minimum(np.maximum(more, 0.0), new)
    new = np.where(first[:, None], 0.0, came)
    total = np.add.accumulate(new, axis=1)[:, -1]
    any_new, had = total > 0, state.latest != NOBODY
    classes = np.count_nonzero(new > 0, axis=1)
    again = np.any((new > 0) & (label == state.latest[:, None]), axis=1)
    newest = label[np.arange(len(label)), np.argmax(new, axis=1)]
    followed = np.where(any_new, total - 1 + had, 0.0)
    repeated = np.where(any_new, total - classes + (again & had), 0.0)
    in_turn = (followed > 0) & (repeated == 0)
    turns = np.where(in_turn, followed - 1 + state.turned, 0.0)
    kept = _KEPT**followed
    # Starts that came together are remembered as if one after another.
    weight = np.divide(1 - kept, (1 - _KEPT) * followed, out=np.zeros_like(kept), where=followed > 0)
    return State(
        started=state.started + came,
        recent=state.recent + np.where(first[:, None], came * _OLD, new),
        repeats=state.repeats * kept * _KEPT_IN_TURN**turns + weight * repeated,
        transitions=state.transitions * kept + weight * followed,
        latest=np.where(any_new, newest, state.latest),
        turned=np.where(any_new, in_turn, state.turned).astype(np.float64),
    )


def move(state: State, node: int, source: int, slot: int, part: float) -> None:
    """Count a part of a slot's starts as those of another, in place: it is given to a class of those pods."""
    for starts in (state.started[node], state.recent[node]):
        starts[slot] = part * starts[source]
        starts[source] -= starts[slot]


def without(state: State, slots: NDArray[np.bool_]) -> State:
    """Return the state without the starts of some slots (nodes, slots): they were none."""
    return state._replace(started=np.where(slots, 0.0, state.started), recent=np.where(slots, 0.0, state.recent))


def weights(started: Array, recent: Array, pods: Array, repeats: Array, transitions: Array) -> Array:
    """Return how likely the next pod is of each class, (nodes, slots); zeros where nothing has started.

    >>> ones = np.ones(1)
    >>> weights(np.array([[4.0, 1.0]]), np.array([[0.1, 0.9]]), np.array([[4.0, 1.0]]), 3 * ones, 4 * ones).round(2)
    array([[0.28, 0.73]])
    """
    running = pods > 0
    part = running | ~running.any(axis=1, keepdims=True)
    started = np.where(part & (started > 0), np.maximum(started, _TRACE * pods), 0.0)
    recent = np.where(part, recent, 0.0)
    all_started, all_recent = (np.add.accumulate(part, axis=1)[:, -1:] for part in (started, recent))
    # The sum of recent starts shows how old the newest is; a thousand at once look half a minute younger.
    age = -_RECENT_SECONDS * np.log(np.maximum(all_recent, _LEAST))
    lasting = np.clip((_OVER_SECONDS - age) / (_OVER_SECONDS - _WHOLE_SECONDS), 0.0, 1.0)
    sticky = ((repeats + _REPEATS) / (transitions + _TRANSITIONS))[:, None] * lasting
    of_all = np.divide(started, all_started, out=np.zeros_like(started), where=all_started > _LEAST)
    of_recent = np.divide(recent, all_recent, out=of_all.copy(), where=all_recent > _LEAST)
    likely: Array = sticky * of_recent + (1 - sticky) * of_all
    return likely
