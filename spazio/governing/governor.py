"""One turn of the governor: measure, compute limits, write them; no bus and no API."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from processors.governing import controller, share, victim
from processors.governing.controller import Input, Output, Params, State
from processors.governing.victim import Candidate
from processors.prediction.tier.priority import Priority
from producers.pods.meter import Layout
from schemas.messages.facts import PodFacts
from schemas.sections.govern import Govern
from spazio.governing import control, directory
from spazio.governing.control import Limit
from spazio.governing.limiter import Limiter
from spazio.governing.observer import Node

_UNEVICTABLE = "DaemonSet"  # its controller puts the pod onto the same node again


class Turn(NamedTuple):
    """Result of one turn.

    Attributes:
        mid: Number of Mid pods that are governed.
        batch: Number of Batch pods that are governed.
        output: Limits of the tiers; None: there is no pod of a lower tier here.
        pressure: Share of time that threads of production wait for a CPU, 0..1; None: unknown.
        failures: Why control files could not be written.
    """

    mid: int
    batch: int
    output: Output | None
    pressure: float | None
    failures: list[str]


class Governor:
    """Sets the limits of pods of the lower tiers.

    Args:
        limiter: Writes control files.
        layout: Mounts of the controllers.
        settings: Shares, marks and times.
    """

    def __init__(self, limiter: Limiter, layout: Layout, settings: Govern) -> None:
        self._limiter, self._layout, self._settings = limiter, layout, settings
        self._params = Params(
            reserve=settings.reserve,
            floor=settings.floor,
            pressure_high=settings.pressure_high,
            pressure_low=settings.pressure_low,
            release=settings.release,
            memory_low=settings.memory_low,
            evict=settings.evict,
            evict_after_seconds=settings.evict_after_seconds,
            evict_seconds=settings.evict_seconds,
        )
        self._state = State()

    def turn(self, node: Node, lower: Mapping[str, PodFacts], unsettled: Collection[str] = ()) -> Turn:
        """Set limits by what was measured.

        Args:
            node: What was measured.
            lower: Facts of pods of lower tiers, by UID.
            unsettled: UIDs of new pods whose facts are on their way. They count as neither, since each new Batch pod
                would else suppress the others for as long as a release takes.

        Raises:
            OSError: The journal cannot be written, or a control file cannot be read.
            ValueError: A control file is malformed.
        """
        lent = {uid: facts for uid, facts in lower.items() if uid in node.usages}
        mid = [uid for uid, facts in lent.items() if directory.tier(facts) is Priority.MID]
        batch = [uid for uid in lent if uid not in mid]
        if not lent:
            self._state = State(evicted_seconds=self._state.evicted_seconds + node.elapsed_seconds)
            return Turn(0, 0, None, None, self._limiter.apply({}))
        others = {*lent, *unsettled} & node.usages.keys()
        pressure = node.pressure(others, 1 - self._params.reserve)
        seen = Input(
            elapsed_seconds=node.elapsed_seconds,
            cores=node.cores,
            production_cores=node.production_cores(others),
            pressure=pressure,
            memory_available=None if node.available_bytes is None else node.available_bytes / node.memory_bytes,
            mid_cores=_used(node, mid) if mid else None,
            batch=bool(batch),
        )
        self._state, output = controller.update(self._state, seen, params=self._params)
        memory = self._memory(node, [*mid, *batch])
        wanted = self._wanted(node, mid, output.mid_cores, memory, idle=False)
        wanted |= self._wanted(node, batch, output.batch_cores, memory, idle=True)
        failures = self._limiter.apply(wanted)
        if not wanted:
            failures.append(f"{self._layout.root} has no CPU controller for pods")
        return Turn(len(mid), len(batch), output, pressure, failures)

    def release(self) -> list[str]:
        """Restore everything; returns what could not be restored."""
        self._state = State()
        return self._limiter.apply({})

    def _memory(self, node: Node, uids: Iterable[str]) -> dict[str, int]:
        """Return the limit of memory of each pod, in bytes; empty: unknown."""
        used = {uid: node.usages[uid].memory_bytes for uid in uids}
        amounts = {uid: amount for uid, amount in used.items() if amount is not None}
        if node.available_bytes is None:
            return {}
        free = node.available_bytes - self._settings.memory_reserve * node.memory_bytes
        return dict(zip(amounts, share.memory(free, list(amounts.values())), strict=True))

    def _wanted(
        self, node: Node, uids: list[str], cores: float, memory: Mapping[str, int], *, idle: bool
    ) -> dict[Path, str | None]:
        """Return the contents of the control files of one tier."""
        used = [node.usages[uid].cpu_cores or 0.0 for uid in uids]
        wanted: dict[Path, str | None] = {}
        for uid, own in zip(uids, share.cores(cores, used, least=control.LEAST_CORES), strict=True):
            pod = node.pods[uid]
            wanted |= control.files(self._layout, pod.paths, pod.containers, Limit(own, memory.get(uid), idle))
        return wanted


def candidate(lower: Mapping[str, PodFacts], running: Collection[str], tried: Collection[str]) -> PodFacts | None:
    """Return the pod to evict first; None: there is none.

    Args:
        lower: Facts of pods of lower tiers, by UID.
        running: UIDs of pods that run here.
        tried: UIDs whose eviction has been asked for.
    """
    candidates = [
        Candidate(uid, int(directory.tier(facts)), facts.created_us)
        for uid, facts in lower.items()
        if uid in running and not facts.terminating and facts.owner_kind != _UNEVICTABLE
    ]
    chosen = victim.choose(candidates, tried)
    return None if chosen is None else lower[chosen.uid]


def _used(node: Node, uids: Iterable[str]) -> float:
    return sum(node.usages[uid].cpu_cores or 0.0 for uid in uids)
