"""Decides minReplicas of an autoscaler from the forecast and its owner's value.

While a floor is raised, annotations keep the owner's value and the raised one. Any later process can restore it, even
after a crash. If minReplicas has another value, somebody else has set it and wins: the value stays, a third annotation
marks it, and the floor is not raised until the forecast has once asked for no more than that value.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kube import apply
from sinks.kubernetes import target
from sinks.kubernetes.target import Target

RESOURCE = "autoscaling/v2/horizontalpodautoscalers"


class Scaler(NamedTuple):
    """A HorizontalPodAutoscaler as the API server has it.

    Attributes:
        namespace: Where it is.
        name: Its name.
        uid: Its uid.
        version: Its resourceVersion.
        workload: Namespace, kind and name of its target.
        minimum: Its minReplicas.
        maximum: Its maxReplicas.
        wanted: Its owner has opted in.
        own: The owner's minReplicas, kept while the floor is raised; None: not kept.
        raised: The value that we have raised it to; None: we have not.
        yielded: Somebody has set it while it was raised, and the forecast asks for more ever since.
        managed: We are a field manager of its minReplicas.
        fields: Its managedFields, without ours.
        targets: What it aims at in CPU and memory.
    """

    namespace: str
    name: str
    uid: str
    version: str
    workload: tuple[str, str, str]
    minimum: int
    maximum: int
    wanted: bool
    own: int | None
    raised: int | None
    yielded: bool
    managed: bool
    fields: list[dict[str, Any]]
    targets: tuple[Target, ...] = ()

    @property
    def held(self) -> bool:
        """Whether its minReplicas is what we have raised it to."""
        return self.raised is not None and self.own is not None and self.minimum == self.raised

    @property
    def marked(self) -> bool:
        """Whether it has annotations of a raised floor."""
        return self.raised is not None or self.own is not None


class Order(NamedTuple):
    """A change of an autoscaler.

    Attributes:
        minimum: minReplicas to set; None: leave it.
        own: Owner's value to keep, with `minimum` as what it was raised to; None: nothing is raised.
        yielded: Mark that somebody else's value stays.
        release: Only give up managing minReplicas.
    """

    minimum: int | None = None
    own: int | None = None
    yielded: bool = False
    release: bool = False


class Marks(NamedTuple):
    """Names of the annotations."""

    wanted: str
    own: str
    raised: str
    yielded: str


def marks(annotation: str) -> Marks:
    """Return the annotations' names, of which the setting is the first.

    >>> marks("spazio.floor").own
    'spazio.floor-restore'
    """
    return Marks(annotation, f"{annotation}-restore", f"{annotation}-raised", f"{annotation}-yielded")


def reader(annotation: str) -> Callable[[Mapping[str, Any]], Scaler]:
    """Return a function that reduces a HorizontalPodAutoscaler; it raises what `Objects` expects."""
    names = marks(annotation)

    def read(thing: Mapping[str, Any]) -> Scaler:
        metadata, spec = thing["metadata"], thing["spec"]
        notes, owner = metadata.get("annotations") or {}, spec["scaleTargetRef"]
        ours = {id(entry) for entry in metadata.get("managedFields") or () if apply.is_ours(entry)}
        return Scaler(
            namespace=str(metadata["namespace"]),
            name=str(metadata["name"]),
            uid=str(metadata["uid"]),
            version=str(metadata["resourceVersion"]),
            workload=(str(metadata["namespace"]), str(owner["kind"]), str(owner["name"])),
            minimum=int(spec.get("minReplicas", 1)),
            maximum=int(spec["maxReplicas"]),
            wanted=notes.get(names.wanted) == "true",
            own=_number(notes.get(names.own)),
            raised=_number(notes.get(names.raised)),
            yielded=names.yielded in notes,
            managed=apply.owns(thing, "", "spec", "minReplicas"),
            fields=[entry for entry in metadata.get("managedFields") or () if id(entry) not in ours],
            targets=target.read(spec, notes.get(f"{annotation}-target")),
        )

    return read


def _number(text: Any) -> int | None:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 else None


def decide(scaler: Scaler, goal: int) -> Order | None:
    """Return the change of an autoscaler; None: it is as it should be.

    Args:
        scaler: Its current state.
        goal: Pods that the forecast asks for; 0: there is no forecast, or the floor must not be raised.
    """
    floor = min(goal, scaler.maximum) if scaler.wanted else 0
    own = scaler.own if scaler.held and scaler.own is not None else scaler.minimum
    if scaler.yielded or (scaler.marked and not scaler.held):
        return _yield(scaler, still=floor > own)
    if floor > own:
        return None if scaler.minimum == floor and scaler.held else Order(floor, own)
    if scaler.held:
        return Order(own)
    return Order(release=True) if scaler.managed else None


def _yield(scaler: Scaler, *, still: bool) -> Order | None:
    """Keep somebody else's value as long as the forecast asks for more than that."""
    if scaler.yielded == still and not scaler.marked:
        return None
    # An apply removes fields that we manage and leave out.
    return Order(scaler.minimum if scaler.managed else None, yielded=still)
