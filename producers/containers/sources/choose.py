"""Make the container sources that settings select."""

import logging
from collections.abc import Callable, Mapping

from producers.containers.sources import survey
from producers.containers.sources.bundle import Bundle
from producers.containers.sources.cgroup import Cgroup
from producers.containers.sources.containerd import Containerd
from producers.containers.sources.docker import Docker
from producers.containers.sources.patient import Patient
from producers.containers.sources.source import Source
from schemas.sections.measurement import CONTAINER_SOURCES
from schemas.settings import Settings

_MAKERS: Mapping[str, Callable[[Settings], Source]] = {
    "cgroup": lambda settings: Cgroup(
        settings.sample.cgroup, settings.sample.proc, rescan_seconds=settings.runtime.rescan_seconds
    ),
    "bundle": lambda settings: Bundle(
        settings.runtime.bundles, rescan_seconds=settings.runtime.rescan_seconds, proc=settings.sample.proc
    ),
    "docker": lambda settings: Docker(settings.runtime.docker_socket),
    "containerd": lambda settings: Containerd(settings.runtime.containerd_socket),
}


def choose(settings: Settings) -> list[Source]:
    """Return the sources to run, the best first; each waits until it is usable.

    `auto` selects all: a runtime may be installed later, and waiting is cheap. A named source that is not usable logs a
    warning.
    """
    if settings.containers == ("none",):
        return []
    auto = settings.containers == ("auto",)
    return [
        Patient(
            _MAKERS[name](settings),
            _shortage(name, settings, auto=auto),
            look_seconds=settings.runtime.rescan_seconds,
            level=logging.INFO if auto else logging.WARNING,
        )
        for name in CONTAINER_SOURCES
        if auto or name in settings.containers
    ]


def _shortage(name: str, settings: Settings, *, auto: bool) -> Callable[[], str]:
    def shortage() -> str:
        if auto and name == "containerd" and survey.inspect("bundle", settings)[0] == "usable":
            return "not needed: bundle reports the same at a lower cost"
        state, finding = survey.inspect(name, settings)
        return "" if state == "usable" else f"{finding}; {survey.remedy(name, finding)}"

    return shortage
