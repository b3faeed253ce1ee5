"""What pods of a class took is remembered for a day after the last of them (ADR 60).

So a job that comes again need not be learned again. As soon as there is evidence of its new pods, nothing else counts.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from processors.estimation.global_model import EVIDENT_PODS, FADING_US, REMEMBERED_US
from processors.model import fair_share
from schemas.messages.estimate import MAXIMUM_CLASSES, ClassSum, Model

_MORE = 1.25  # times what others attested: a pod takes more now
_REMEMBERED = 16  # classes, since jobs may have a name of their own each time
ATTESTED = 2  # nodes that make a class more than the word of one
_ABSENT_US = 30 * 1_000_000  # without evidence: pods of a class that come then have come back


class Remembered(NamedTuple):
    """The cluster's newest evidence of a class.

    Attributes:
        at_us: When enough nodes had it.
        item: What it is.
        returned: Its pods have come back after there was none.
        present_us: When two nodes last had evidence of it; 0: when enough had.
    """

    at_us: int
    item: ClassSum
    returned: bool = False
    present_us: int = 0


Attested = dict[str, Remembered]  # by class, in order of time


def listed(by_pods: Iterable[str], nodes: Callable[[str], int]) -> list[str]:
    """Return which classes fit into a message, in their order.

    One node may name as many classes as it likes, and remembers those whose pods have ended: the ones of which several
    nodes have evidence come first.

    Args:
        by_pods: Names of classes, those with most pods first.
        nodes: Returns of a class how many nodes have evidence of it.
    """
    names = list(by_pods)
    kept = set(sorted(names, key=lambda name: nodes(name) < ATTESTED)[:MAXIMUM_CLASSES])
    return [name for name in names if name in kept]


def evident(sums: Mapping[str, ClassSum], before: Collection[str]) -> dict[str, ClassSum]:
    """Return the classes of which there is evidence; a class that was evident `before` is so by half as much.

    How much evidence a node has depends on what is known elsewhere, so without that a class would come and go.
    """
    least = {True: EVIDENT_PODS / 2, False: EVIDENT_PODS}
    return {name: item for name, item in sums.items() if item.pods >= least[name in before]}


def remember(before: Attested, model: Model, evident: Mapping[str, ClassSum]) -> Attested:
    """Return what is remembered of classes after a global model, some of whose classes are evident.

    What pods took in their last seconds is often little, as while they drain; so what they took before fades over ten
    minutes. Fewer than three of several nodes attest nothing, but where they show that a pod takes more, it is
    forgotten what others attested.
    """
    several, now = (model.voting or 0) >= fair_share.LEAST_VOTERS, model.at_us
    newest = {
        name: _renewed(item, now, before.get(name))
        for name, item in evident.items()
        if not several or (item.nodes or 0) >= fair_share.LEAST_VOTERS
    }
    gone = [
        (name, _still(each, now, evident.get(name)))
        for name, each in before.items()
        if name not in newest and now - each.at_us <= REMEMBERED_US and not _exceeds(evident.get(name), each.item)
    ]
    return dict(gone[-_REMEMBERED:]) | newest


def _renewed(item: ClassSum, now: int, before: Remembered | None) -> Remembered:
    """Return sums of which a pod takes at least what it took before, less what has faded of that."""
    if before is None:
        return Remembered(now, item)
    at_us, earlier, returned, present_us = before
    pods = item.pods / earlier.pods * 2 ** (-max(now - at_us, 0) / FADING_US)
    most = {"cpu": max(item.cpu, pods * earlier.cpu), "memory": max(item.memory, pods * earlier.memory)}
    absent = now - max(at_us, present_us) > _ABSENT_US
    return Remembered(now, item.model_copy(update=most), returned or absent)


def _still(each: Remembered, now: int, item: ClassSum | None) -> Remembered:
    """Return what stays of a class of which too few nodes have evidence; a clock that was ahead makes nothing last.

    What one node alone says of it is no sign of it: that node may hang, or lie.
    """
    is_present = item is not None and (item.nodes or 0) >= ATTESTED
    return each._replace(at_us=min(each.at_us, now), present_us=now if is_present else min(each.present_us, now))


def _exceeds(item: ClassSum | None, earlier: ClassSum) -> bool:
    if item is None:
        return False
    most = _MORE * item.pods / earlier.pods
    return item.cpu > most * earlier.cpu or item.memory > most * earlier.memory


def dump(attested: Attested) -> dict[str, Any]:
    """Return what is remembered as JSON types."""
    return {
        name: [each.at_us, each.item.model_dump(exclude_none=True), each.returned, each.present_us]
        for name, each in attested.items()
    }


def load(stored: Mapping[str, Any]) -> Attested:
    """Take over what `dump` returned; earlier versions did not store what has come back, and what was present.

    Raises:
        ValueError: It is none.
    """
    return {
        name: Remembered(int(at_us), ClassSum.model_validate(item), *later)
        for name, (at_us, item, *later) in stored.items()
    }
