"""One account of what runs, out of what several sources saw: each event of each life of a container, once, in order.

A container lives from `created` to `exited` or `deleted`; its id may live again when a runtime restarts it. Sources
tell of the same life at different moments, by half a second and more when the machine is busy, and each tells its
own part of it. So times alone cannot say which life an observation is of; `lifetime` finds it by the order in which
one source tells. What is told of a life that is over, or has been replaced, is stale: nothing comes of it.

A listing is news of the same kind: what a source lists as running has started, what it does not list any more has
exited and is deleted; a source's own observation after the moment of the listing outweighs it, and an end that it
has just told of outweighs a list in which the container still runs.

Whoever was here before (an agent that was restarted) has said things too: `remember` takes them in. Until then, what
is known from listings alone is held back; what is seen to begin is not.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from prometheus_client import Counter

from producers.containers import lifetime
from producers.containers.lifetime import Life, Place
from producers.containers.registry import Registry
from producers.containers.sources.source import Event, Identity, Observation

STALE = Counter("spazio_container_stale_total", "observations of a container's life that was over already")

KEPT_US = 60_000_000
MOST = 20_000  # containers known at a time; a node runs hundreds


class Happening(NamedTuple):
    """Something that happened to a container, to be said once.

    Attributes:
        event: What.
        identity: Who it is, as far as is known by now.
        sources: Who has reported this container in this life, first one first.
        boottime_us: When; never before what happened earlier in the same life.
    """

    event: Event
    identity: Identity
    sources: tuple[str, ...]
    boottime_us: int


@dataclass(frozen=True, slots=True)
class Said:
    """The last thing that was said of a container, before this account began."""

    happening: Happening
    rebooted: bool = False  # since then

    @property
    def alive(self) -> bool:
        """Whether the container was there by that."""
        return self.happening.event in ("created", "started")


@dataclass(frozen=True, slots=True)
class Memory:
    """What was said before.

    Attributes:
        said: The last thing that was said of each container, as far back as anybody remembers.
        pods: Pods that ran when the node was last heard of; their containers may have begun before that.
    """

    said: Mapping[str, Said] = field(default_factory=dict)
    pods: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Container:
    identity: Identity
    lives: list[Life] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)
    held: list[tuple[int, Happening]] | None = None  # (number of the life, what is not said yet)


class Merge:
    """The account. Each call returns what there is to say by it; nothing else remembers or waits.

    Args:
        registry: Learns and forgets who containers are.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._containers: dict[str, _Container] = {}
        self._listed: dict[str, set[str]] = {}  # containers that a source has reported, and not that they are deleted
        self._before: Memory | None = None
        self._settled = False

    def observe(self, observation: Observation) -> list[Happening]:
        """Take in what a source has seen."""
        source, stage, at_us = observation.source, lifetime.STAGES[observation.event], observation.boottime_us
        known = None
        if stage <= lifetime.STARTED and observation.identity.container not in self._containers and self._before:
            known = self._before.said.get(observation.identity.container)
        container = self._find(observation.identity, create=stage <= lifetime.STARTED, listed=False)
        if container is None:
            STALE.inc()
            return []
        return (_end(known, at_us - 1) if known and known.alive else []) + self._release(
            container, self._report(container, source, stage, at_us, observation.identity)
        )

    def present(self, source: str, listed: Mapping[str, tuple[Identity, bool]], at_us: int) -> list[Happening]:
        """Take in everything that a source sees at one moment, and whether it is running."""
        said: list[Happening] = []
        for identity, running in listed.values():
            container = self._find(identity, create=running, listed=True)
            if container is None:
                continue
            stage = lifetime.listed(container.places.get(source), running, at_us)
            if stage is not None:
                said += self._release(container, self._report(container, source, stage, at_us, identity))
            elif (place := container.places.get(source)) is not None and place.identity is not identity:
                place.identity = identity
                self._learn(container, identity)
        for id_ in self._listed.get(source, set()) - listed.keys():
            container = self._containers[id_]
            place = container.places[source]
            if place.at_us <= at_us:
                stages = (lifetime.EXITED, lifetime.DELETED) if place.stage < lifetime.EXITED else (lifetime.DELETED,)
                for stage in stages:
                    said += self._release(container, self._report(container, source, stage, at_us, place.identity))
        self._forget(at_us)
        return said

    def remember(self, memory: Memory, at_us: int) -> list[Happening]:
        """Take in what was said before; return what has been held back and was not said then.

        What was alive before a reboot is over.
        """
        result: list[Happening] = []
        for known in memory.said.values():
            if known.alive and known.rebooted:
                result += _end(known, at_us)
        # A pod of which events are remembered is known by them; of one that began long ago there are none.
        told = {known.happening.identity.pod for known in memory.said.values()}
        said = {id_: known for id_, known in memory.said.items() if not known.rebooted}
        self._before = Memory(said, memory.pods - told)
        for id_, known in self._before.said.items():
            if known.alive and (container := self._containers.get(id_)) is not None:
                self._learn(container, known.happening.identity)
        for container in self._containers.values():
            result += self._release(container, [])
        return result

    def settle(self, at_us: int) -> list[Happening]:
        """Take it that all sources have listed what they see: what was alive before, and is not listed, has gone."""
        result: list[Happening] = []
        for id_, known in (self._before or Memory()).said.items():
            if known.alive and id_ not in self._containers and self._registry.get(id_) is None:
                result += _end(known, at_us)
        self._before, self._settled = Memory(), True
        return result

    def _find(self, identity: Identity, *, create: bool, listed: bool) -> _Container | None:
        container = self._containers.get(identity.container)
        if container is None and create:
            container = self._containers[identity.container] = _Container(identity)
            if listed and not self._settled:
                container.held = []
                known = self._before.said.get(identity.container) if self._before else None
                if known and known.alive:
                    container.identity = identity.joined(known.happening.identity)
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
        """Move a source to its next place; return what nobody has reported before."""
        self._learn(container, identity)
        place = container.places.get(source)
        life = lifetime.meant(container.lives, place, stage, at_us)
        if life is None:
            return []
        container.places[source] = Place(life, stage, at_us, identity)
        reported = self._listed.setdefault(source, set())
        reported.discard(identity.container) if stage == lifetime.DELETED else reported.add(identity.container)
        if source not in life.sources:
            life.sources.append(source)
        if life is not container.lives[-1] or (stage <= lifetime.STARTED and life.stage >= lifetime.EXITED):
            STALE.inc()
            return []
        return list(self._advance(container, life, stage, at_us))

    def _advance(self, container: _Container, life: Life, stage: int, at_us: int) -> Iterator[tuple[int, Happening]]:
        """Yield the events that bring a life to a stage: what starts was created, what is deleted had exited."""
        before = life.stage
        if stage <= before:
            return
        life.stage = stage
        life.last_us = max(life.last_us, at_us)
        if stage >= lifetime.EXITED and life.ended_us is None:
            life.ended_us = life.last_us
        identity = self._registry.completed(container.identity)
        for step in range(before + 1, stage + 1):
            unseen = step == lifetime.STARTED and stage > lifetime.STARTED  # it has ended and nobody saw it start
            never = step == lifetime.EXITED and stage == lifetime.DELETED and before < lifetime.STARTED  # it never ran
            if not unseen and not never:
                happening = Happening(lifetime.EVENTS[step - 1], identity, tuple(life.sources), life.last_us)
                yield life.number, happening

    def _release(self, container: _Container, news: list[tuple[int, Happening]]) -> list[Happening]:
        """Return what may be said of a container now; holds it back until it is known what was said before."""
        if container.held is None:
            return [happening for _, happening in news]
        container.held += news
        if self._before is None:
            return []
        stage = _stage_said(self._before, container.identity)
        held, container.held = container.held, None
        first = container.lives[0].number
        return [
            item._replace(identity=item.identity.joined(container.identity))
            for number, item in held
            if number > first or lifetime.STAGES[item.event] > stage
        ]

    def _forget(self, at_us: int) -> None:
        """Forget what was deleted a minute ago; when there is too much, also what has ended otherwise, oldest first."""
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
            for source in self._containers.pop(id_).places:
                self._listed[source].discard(id_)


def _stage_said(before: Memory, identity: Identity) -> int:
    """Return how far a container had come by what was said of it before; 0: nothing was, or it had ended."""
    known = before.said.get(identity.container)
    if known is None:
        return lifetime.STARTED if identity.pod in before.pods else 0
    return lifetime.STAGES[known.happening.event] if known.alive else 0


def _end(known: Said, at_us: int) -> list[Happening]:
    last = known.happening
    return [Happening(event, last.identity, last.sources, at_us) for event in ("exited", "deleted")]
