"""Why a simulated figure is not as published: a sentence for each row whose error is beyond its limit."""

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.evaluation.comparison import Row


class _Reason(NamedTuple):
    """A mechanism, and the rows that it explains."""

    explains: Callable[[Row], bool]
    text: str


def of(row: Row) -> str:
    """Return why a row differs from the publication.

    Raises:
        LookupError: No reason is known; find it before the row is published.
    """
    for reason in _REASONS:
        if reason.explains(row):
            return reason.text
    published = row.published
    raise LookupError(
        f"{row.scheduler}, {published.table}, {published.case}, {published.figure}: {100 * row.error:+.0f} % without a "
        "reason; add it to benchmarks/evaluation/reasons.py"
    )


def _is(scheduler: str, tables: str, test: Callable[[Row], bool] = lambda _row: True) -> Callable[[Row], bool]:
    """Return whether a row is of a scheduler, of one of these tables, and passes a test."""
    return lambda row: row.scheduler == scheduler and row.published.table in tables.split() and test(row)


def _requested(cores: float) -> Callable[[Row], bool]:
    return lambda row: row.published.case.request == cores


def _small(row: Row) -> bool:
    return row.published.case.bpi <= 250


_REASONS: tuple[_Reason, ...] = (
    _Reason(
        _is("kube", "T2 T3", test=_requested(0.5)),
        "Beside what system pods request, six pods of 500m fit on a simulated node; by Little's law about five at a "
        "time ran on a published one. So CPUs are shared here, and a pod takes longer.",
    ),
    _Reason(
        _is("kube", "T2", test=_requested(1.0)),
        "Three pods of a whole core fit on a node, so the pause between one pod's end and the next one's start "
        "decides: a pod that waits is tried at once here, as since kube-scheduler 1.33, and backed off in the "
        "published one.",
    ),
    _Reason(
        _is("kube", "T2", test=_small),
        "A job this small lasts hardly longer than its last pod, so one start latency and one rate of creation for "
        "all sizes do not fit it exactly.",
    ),
    _Reason(
        _is("kube", "T2"),
        "One amount of work and one loss of throughput for all sizes and requests leave such a rest.",
    ),
    _Reason(
        _is("kube", "T3"),
        "Pods of one class have the same work within 5 % here, and the first ones run before the nodes have filled; "
        "the published extremes and spread also have what other services of the nodes did.",
    ),
    _Reason(
        _is("kube", "T4", test=lambda row: row.published.case.ml == 200),
        "How many ml pods fit on a node by memory is not published: with 1 GiB kept for the system nine do here. "
        "What the rest of 29 pods waits for and how far pods on one node are apart follows from that number.",
    ),
    _Reason(
        _is("kube", "T4"),
        "The published pods train and infer, which need not take the same CPU all the time. Here they compute "
        "without a pause and are alike, so they end closer together.",
    ),
    _Reason(
        _is("kube", "T5"),
        "The request of bpi pods beside ml pods is not published; 100m is assumed. How many threads an ml pod has "
        "while it trains and while it infers is one number here.",
    ),
    _Reason(
        _is("kube", "T6"),
        "Slowdown here is that of the server's threads, each of which has the same share of a CPU as a thread of a "
        "bpi pod. Linux favours threads that wake from sleep, and the published server answered within one time "
        "slice.",
    ),
    _Reason(
        _is("reference", "T2", test=_small),
        "The reference variant begins with the reference pod's cost, and learns while a small job ends; how it "
        "began in the published cluster, with what history, is not known.",
    ),
    _Reason(
        _is("reference", "T2 T3"),
        "By Little's law 3.7 pods of a node ran at once under the published spazio, and 6 to 7 do under the "
        "simulated one, so pods share CPUs here. It has no lower bound and counts a pod as soon as it runs; what "
        "held the published one back is not known.",
    ),
    _Reason(
        _is("reference", "T4"),
        "By Little's law 1.6 ml pods of a node ran at once under the published spazio. The simulated reference "
        "variant measures one blend of all metrics, which several starting pods do not show yet, and places more of "
        "them; what made the published one wait is not known.",
    ),
    _Reason(
        _is("reference", "T5"),
        "As in T2 and T4 the simulated reference variant puts more pods on a node than the published one did, so "
        "short pods share CPUs with long ones.",
    ),
    _Reason(
        _is("reference", "T6"),
        "More bpi pods run beside the server than under the published spazio, and slowdown is that of threads with "
        "equal shares, while Linux favours a server that wakes from sleep.",
    ),
    _Reason(
        _is("spazio", "T2"),
        "The default form admits one pod a node until it has measured one, which takes about four seconds of the "
        "first pods, and then fills a node by its lower bound only; the published one had no such bound.",
    ),
    _Reason(
        _is("spazio", "T3"),
        "A node takes as many pods as the policy's slowdown of 2 allows, so pods share CPUs a little more than the "
        "published 3.7 of a node did.",
    ),
    _Reason(
        _is("spazio", "T4"),
        "An ml pod has two threads here, so two of them are what a slowdown of 2 surely allows on 4 CPUs; 1.6 ran at "
        "once in the published cluster. The parallelism of the published pods is not known.",
    ),
    _Reason(
        _is("spazio", "T5"),
        "Each ml pod takes the room of several bpi pods, and the cluster's mix says what comes next only after it "
        "has changed; the published form knew no classes and let them share.",
    ),
    _Reason(
        _is("spazio", "T6"),
        "Slowdown here is that of the server's threads alone. Above it, latencies of the published server have its "
        "own queue and the network; below it, Linux favours a server that wakes from sleep.",
    ),
)
