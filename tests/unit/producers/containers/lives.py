"""Reports of sources, and what is reported of them."""

from collections.abc import Mapping

from producers.containers.merge import Merge
from producers.containers.published import Happening, Memory
from producers.containers.registry import Registry
from producers.containers.sources.source import Event, Identity, Observation

ID = 64 * "a"


def seen(event: Event, at: float, source: str = "cgroup", identity: Identity | None = None) -> Observation:
    return Observation(source, event, identity or Identity(ID), round(at * 1_000_000))


def account(*, settled: bool = True) -> Merge:
    made = Merge(Registry())
    if settled:
        made.remember(Memory(), 0)
        made.settle(0)
    return made


def listing(*containers: str, running: bool = True) -> Mapping[str, tuple[Identity, bool]]:
    return {container: (Identity(container), running) for container in containers}


def events(happenings: list[Happening]) -> list[Event]:
    return [happening.event for happening in happenings]
