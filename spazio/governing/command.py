"""`spazio govern`: restores what an earlier run has left, then governs.

Restoring needs neither the bus nor the API, so it comes before everything else.
"""

import asyncio
import logging
import time

from kube import api
from producers import file, inventory
from producers.pods.census import Census
from producers.pods.meter import Layout
from schemas.settings import Settings
from spazio.governing.governor import Governor
from spazio.governing.journal import Busy, Journal
from spazio.governing.limiter import Limiter
from spazio.governing.observer import Observer
from spazio.governing.service import Service
from spazio.service import logs, service
from spazio.service.service import Context
from spazio.terminal import clean

log = logging.getLogger(__name__)

_JOURNAL = "govern.json"


def run(settings: Settings) -> int:
    """Run the service; returns its exit status.

    Raises:
        SettingsError: Pods are to be evicted, and no API server is configured or its settings cannot be used.
    """
    if settings.govern.evict:
        asyncio.run(api.address(settings.kube))
    logs.configure(settings.log, "govern")
    sample, path = settings.sample, settings.govern.journal or settings.data.dir / _JOURNAL
    try:
        journal = Journal(path, inventory.boot_id(sample.proc))
    except (Busy, OSError) as error:
        clean.complain(str(error))
        return 2
    layout, limiter = Layout(sample.cgroup), Limiter(sample.cgroup, journal)

    async def work(context: Context) -> None:
        observer = Observer(
            Census(sample.cgroup, sample.proc),
            layout,
            sample.proc,
            descriptors=file.allow_descriptors(),
            monotonic=time.monotonic_ns,
        )
        await Service(context, observer, Governor(limiter, layout, settings.govern)).run()

    with journal:
        _restore(limiter)
        return service.run("govern", settings, work, streams=False)


def _restore(limiter: Limiter) -> None:
    """Restore what an earlier run has left."""
    held = limiter.held
    if not held:
        return
    try:
        failures = limiter.apply({})
    except (OSError, ValueError) as error:  # each turn tries again
        log.error("limits.restore_failed", extra={"reason": repr(error)})  # noqa: TRY400 # no trace is needed
    else:
        log.info("limits.restored", extra={"files": held - limiter.held, "failed": len(failures)})
