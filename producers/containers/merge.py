"""Merge observations of several sources: each event of each life of a container, once, in order.

A container lives from `created` to `exited` or `deleted`; its id lives again when a runtime restarts it. Sources
report the same life at different times, half a second apart or more on a busy machine, and each reports only some
events. So times alone do not identify the life of an observation; `lifetime` finds it by the order of the reports of
one source. Observations of a life that has ended or was replaced are stale, and the merge ignores them.

A listing also reports events: a container that a source lists as running has started, and one that it no longer lists
has exited and is deleted. A source's own observation after the time of the listing has precedence, and so has a
recent end over a list in which the container still runs.

The previous process of a restarted agent has published events too: `remember` loads them. Until then the merge holds
back containers that only listings have reported; it does not hold back starts that a source observed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import Counter

from producers.containers import lifetime
from producers.containers.lifetime import Life, Position
from producers.containers.published import Before, Happening, LastEvent, Memory
from producers.containers.registry import Registry
from producers.containers.sources.source import Identity, Observation

STALE = Counter("spazio_container_stale_total", "observations of a container's life that was over already")

KEPT_US = 60_000_000
MOST = 20_000  # containers at a time; a node runs hundreds


@dataclass(slots=True)
class _Container:
    identity: Identity
    lives: list[Life] = field(default_factory=list)
    positions: dict[str, Position] = field(default_factory=dict)
    held: list[tuple[int, Happening]] | None = None  # (number of the life, event that is not published yet)


class Merge:
    """Merges the sources. Each call returns the events to publish; there is no other state, and no waiting.

    Args:
        registry: Registry of identities, which the merge updates.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._containers: dict[str, _Container] = {}
        self._listed: dict[str, set[str]] = {}  # containers that a source has reported and not as deleted
        self._heard: dict[str, int] = {}  # time of each source's last listing
        self._before: Before | None = None
        self._settled = False
        self._idle: dict[str, set[str]] = {}  # until settled: what does not run, and the sources that list it

    def observe(self, observation: Observation) -> list[Happening]:
        """Process an observation of a source."""
        source, stage, at_us = observation.source, lifetime.STAGES[observation.event], observation.boottime_us
        previous = None
        if stage <= lifetime.STARTED and observation.identity.container not in self._containers and self._before:
            previous = self._before.events.get(observation.identity.container)
        container = self._find(observation.identity, create=stage <= lifetime.STARTED, listed=False)
        if container is None:
            STALE.inc()
            return []
        return (_end(previous, at_us - 1) if previous and previous.alive else []) + self._release(
            container, self._report(container, source, stage, at_us, observation.identity)
        )

    def present(self, source: str, listed: Mapping[str, tuple[Identity, bool]], at_us: int) -> list[Happening]:
        """Process a listing of a source: all its containers at one time, and whether they run."""
        result: list[Happening] = []
        self._heard[source] = at_us
        for identity, running in listed.values():
            container = self._find(identity, create=running, listed=True)
            if container is None:
                if not self._settled:
                    self._idle.setdefault(identity.container, set()).add(source)
                continue
            stage = lifetime.listed(container.positions.get(source), running, at_us)
            if stage == lifetime.STARTED and self._is_denied(container, source, at_us):
                continue
            if stage is not None:
                result += self._release(container, self._report(container, source, stage, at_us, identity))
            elif (position := container.positions.get(source)) is not None and position.identity is not identity:
                position.identity = identity
                self._learn(container, identity)
        for id_ in self._listed.get(source, set()) - listed.keys():
            container = self._containers[id_]
            position = container.positions[source]
            if position.at_us <= at_us:
                stages = (
                    (lifetime.EXITED, lifetime.DELETED) if position.stage < lifetime.EXITED else (lifetime.DELETED,)
                )
                for stage in stages:
                    result += self._release(container, self._report(container, source, stage, at_us, position.identity))
        self._forget(at_us)
        return result

    def remember(self, memory: Memory, at_us: int) -> list[Happening]:
        """Load events that were published before; return held events that are not among them.

        Containers that were alive before a reboot have ended.
        """
        result: list[Happening] = []
        for last in memory.events.values():
            if last.alive and last.rebooted:
                result += _end(last, at_us)
        self._before = Before(memory)
        for id_, last in self._before.events.items():
            if last.alive and (container := self._containers.get(id_)) is not None:
                self._learn(container, last.happening.identity)
        for container in self._containers.values():
            result += self._release(container, [])
        return result

    def settle(self, at_us: int) -> list[Happening]:
        """End the start: all sources have listed, so a container that was alive before and is in no list has ended.

        One that was created before and is listed without running still waits for its start.
        """
        result: list[Happening] = []
        for id_, last in (self._before or Before(Memory())).events.items():
            if last.alive and id_ not in self._containers and self._registry.get(id_) is None:
                if last.happening.event == "created" and (sources := self._idle.get(id_)):
                    self._resume(last.happening.identity, sources, at_us)
                else:
                    result += _end(last, at_us)
        self._before, self._settled, self._idle = Before(Memory()), True, {}
        return result

    def _resume(self, identity: Identity, sources: Iterable[str], at_us: int) -> None:
        """Go on with a container that was published as created."""
        container = self._containers[identity.container] = _Container(identity)
        life = Life(1, lifetime.CREATED, at_us, sources=sorted(sources))
        container.lives.append(life)
        for source in sources:
            container.positions[source] = Position(life, lifetime.CREATED, at_us, identity)
            self._listed.setdefault(source, set()).add(identity.container)
        self._registry.put(identity)

    def _is_denied(self, container: _Container, source: str, at_us: int) -> bool:
        """Tell whether another source that has listed lately does not have a container any more.

        A list may lag: docker's has what has ended while containerd was away, and a bundle may stay for ever.
        """
        return any(
            position.stage == lifetime.DELETED and self._heard.get(other, 0) > at_us - lifetime.LATE_US
            for other, position in container.positions.items()
            if other != source
        )

    def _find(self, identity: Identity, *, create: bool, listed: bool) -> _Container | None:
        container = self._containers.get(identity.container)
        if container is None and create:
            container = self._containers[identity.container] = _Container(identity)
            if listed and not self._settled:
                container.held = []
                last = self._before.events.get(identity.container) if self._before else None
                if last and last.alive:
                    container.identity = identity.joined(last.happening.identity)
            self._registry.put(container.identity)
        return container

    def _learn(self, container: _Container, identity: Identity) -> None:
        joined = container.identity.joined(identity)
        if joined is not container.identity:
            container.identity = joined
            self._registry.put(joined)

    def _report(
        self, container: _Container, source: str, stage: int, at_us: int, identity: Identity
    ) -> list[tuple[int, Happening]]:
        """Move a source to its next position; return the events that no source has reported before."""
        self._learn(container, identity)
        position = container.positions.get(source)
        life = lifetime.meant(container.lives, position, stage, at_us)
        if life is None:
            return []
        container.positions[source] = Position(life, stage, at_us, identity)
        reported = self._listed.setdefault(source, set())
        reported.discard(identity.container) if stage == lifetime.DELETED else reported.add(identity.container)
        if source not in life.sources:
            life.sources.append(source)
        if life is not container.lives[-1] or (stage <= lifetime.STARTED and life.stage >= lifetime.EXITED):
            STALE.inc()
            return []
        return list(self._advance(container, life, stage, at_us))

    def _advance(self, container: _Container, life: Life, stage: int, at_us: int) -> Iterator[tuple[int, Happening]]:
        """Yield the events up to a stage: a started container was created, a deleted one had exited."""
        before = life.stage
        if stage <= before:
            return
        life.stage = stage
        life.last_us = max(life.last_us, at_us)
        if stage >= lifetime.EXITED and life.ended_us is None:
            life.ended_us = life.last_us
        identity = self._registry.completed(container.identity)
        for step in range(before + 1, stage + 1):
            unseen = step == lifetime.STARTED and stage > lifetime.STARTED  # it ended and no source saw it start
            never = step == lifetime.EXITED and stage == lifetime.DELETED and before < lifetime.STARTED  # it never ran
            if not unseen and not never:
                happening = Happening(lifetime.EVENTS[step - 1], identity, tuple(life.sources), life.last_us)
                yield life.number, happening

    def _release(self, container: _Container, news: list[tuple[int, Happening]]) -> list[Happening]:
        """Return the events of a container to publish now; hold them until earlier published events are loaded."""
        if container.held is None:
            return [happening for _, happening in news]
        container.held += news
        if self._before is None:
            return []
        stage = self._before.stage(container.identity)
        held, container.held = container.held, None
        first = container.lives[0].number
        return [
            item._replace(identity=item.identity.joined(container.identity))
            for number, item in held
            if number > first or lifetime.STAGES[item.event] > stage
        ]

    def _forget(self, at_us: int) -> None:
        """Drop containers that were deleted a minute ago; above `MOST` also other ended ones, oldest first."""
        over = [
            id_
            for id_, container in self._containers.items()
            if (life := container.lives[-1]).stage == lifetime.DELETED and life.last_us < at_us - KEPT_US
        ]
        if len(self._containers) - len(over) > MOST:
            ended = [id_ for id_, container in self._containers.items() if container.lives[-1].ended_us is not None]
            over = list(dict.fromkeys(over + ended))[: max(len(over), len(self._containers) - MOST)]
        for id_ in over:
            self._registry.drop(id_)
            for source in self._containers.pop(id_).positions:
                self._listed[source].discard(id_)


def _end(last: LastEvent, at_us: int) -> list[Happening]:
    identity, sources = last.happening.identity, last.happening.sources
    return [Happening(event, identity, sources, at_us) for event in ("exited", "deleted")]
