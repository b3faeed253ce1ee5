"""The governor as a service: facts of pods from the bus, a turn each second in a thread, evictions through the API.

A write of memory.high returns once the kernel has reclaimed what is above it, so turns have a thread of their own. At
the end the same thread restores everything, behind the turn that may be under way.
"""

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import Counter, Gauge

from bus import errors
from kube import answer
from kube.api import Api
from processors.governing.controller import Reason
from schemas.messages.facts import PodFacts
from schemas.subject import Names
from spazio.governing import evictor, governor
from spazio.governing.directory import Directory
from spazio.governing.governor import Governor, Turn
from spazio.governing.observer import Observer
from spazio.service.service import Context

log = logging.getLogger(__name__)

_FACTS, _CGROUPS, _EVICTION = "facts", "cgroups", "eviction"
_LOOK_SECONDS = 1.0  # between two looks for new pods

PODS = Gauge("spazio_govern_pods", "pods of this node that are governed, by tier", ["tier"])
LIMIT = Gauge(
    "spazio_govern_limit_cores", "CPU that the pods of a tier may use together; NaN: nothing is governed", ["tier"]
)
PRESSURE = Gauge("spazio_govern_pressure", "share of time that threads of production wait for a CPU; NaN: unknown")
SUPPRESSED = Gauge("spazio_govern_suppressed", "1 while lower tiers have no more than their floor")
EVICTIONS = Counter("spazio_govern_evictions_total", "evictions that were asked for", ["outcome"])


class Service:
    """Governs until cancelled.

    Args:
        context: Connection, settings and health of the service.
        observer: Measures this node.
        governor: Sets limits.
    """

    def __init__(self, context: Context, observer: Observer, own: Governor) -> None:
        settings = context.settings
        self._settings, self._health, self._observer, self._governor = settings, context.health, observer, own
        self._directory = Directory(
            context.client,
            Names(settings.prefix),
            settings.sample.node_name,
            timeout_seconds=settings.nats.request_timeout_seconds,
            facts_seconds=settings.govern.facts_seconds,
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spazio-govern")
        self._api = Api(settings.kube) if settings.govern.evict else None
        self._running: frozenset[str] = frozenset()
        self._due: asyncio.Queue[Reason] = asyncio.Queue(1)
        self._tried: set[str] = set()
        self._readings, self._suppressed = 0, False
        self._due_at = 0.0  # when an eviction was due last

    async def run(self) -> None:
        """Govern until cancelled; then restore all limits."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                group.create_task(self._govern())
                group.create_task(self._evict())
        finally:
            try:
                failures = await asyncio.get_running_loop().run_in_executor(self._thread, self._governor.release)
                log.info("limits.restored", extra={"failed": len(failures)})
            finally:
                self._thread.shutdown()
            if self._api is not None:
                await self._api.close()

    async def _follow(self) -> None:
        """Keep the facts of this node's pods."""
        while True:
            try:
                await self._directory.refresh(self._running)
            except errors.REQUEST_FAILED as error:
                self._health.degrade(
                    _FACTS, f"the bus does not say which pods are of lower tiers; new ones are not governed: {error!r}"
                )
            else:
                self._report_facts()
            await asyncio.sleep(_LOOK_SECONDS)

    def _report_facts(self) -> None:
        if self._running and not self._directory.pods:
            self._health.degrade(
                _FACTS,
                f"nothing is governed: the bus has no facts of the pods of node {self._settings.sample.node_name}; run "
                "`spazio watch`, and name the node with --sample-node as Kubernetes does",
            )
        else:
            self._health.recover(_FACTS)

    async def _govern(self) -> None:
        """Take a turn after each interval."""
        loop, pause = asyncio.get_running_loop(), self._settings.govern.interval_seconds
        while True:
            began, lower, settled = loop.time(), self._directory.lower(), self._directory.settled
            try:
                turn = await loop.run_in_executor(self._thread, self._turn, lower, settled)
            except (OSError, ValueError, LookupError) as error:
                self._health.degrade(_CGROUPS, f"limits stay as they are: {error!r}")
            else:
                if turn is not None:
                    self._report(turn)
                reason = None if turn is None or turn.output is None else turn.output.evict
                self._schedule(reason, began)
            await asyncio.sleep(max(0.0, pause - (loop.time() - began)))

    def _schedule(self, reason: Reason | None, now: float) -> None:
        """Have a pod evicted if there is a reason; a refusal is over once none has been due for longer than a pause."""
        govern = self._settings.govern
        if reason is None:
            if now - self._due_at > govern.evict_seconds + 2 * govern.interval_seconds:
                self._health.recover(_EVICTION)
            return
        self._due_at = now
        if self._due.empty():
            self._due.put_nowait(reason)

    def _turn(self, lower: Mapping[str, PodFacts], settled: frozenset[str] | None) -> Turn | None:
        """Measure and set limits, in the thread; None: there is nothing to compare with yet."""
        node, self._readings = self._observer.read(), self._readings + 1
        if node is None:
            if self._readings > 1:
                raise LookupError(f"{self._settings.sample.cgroup} has no cgroups; name their mount: --sample-cgroup")
            return None
        self._running = frozenset(node.usages)
        unsettled = frozenset() if settled is None else self._running - settled
        return self._governor.turn(node, lower, unsettled)

    def _report(self, turn: Turn) -> None:
        if turn.failures:
            remedy = "run as root, with the cgroup trees mounted writable"
            self._health.degrade(_CGROUPS, f"limits cannot be set: {', '.join(turn.failures)}; {remedy}")
        else:
            self._health.recover(_CGROUPS)
        PODS.labels("mid").set(turn.mid)
        PODS.labels("batch").set(turn.batch)
        PRESSURE.set(float("nan") if turn.pressure is None else turn.pressure)
        suppressed = turn.output is not None and turn.output.at_floor
        SUPPRESSED.set(suppressed)
        LIMIT.labels("mid").set(float("nan") if turn.output is None else turn.output.mid_cores)
        LIMIT.labels("batch").set(float("nan") if turn.output is None else turn.output.batch_cores)
        if suppressed != self._suppressed:
            self._suppressed = suppressed
            fields = {"mid": turn.mid, "batch": turn.batch, "pressure": turn.pressure}
            log.info("tiers.suppressed" if suppressed else "tiers.released", extra=fields)

    async def _evict(self) -> None:
        """Evict one pod whenever it is due; turns go on while the API server answers.

        At the next time the pod comes last, since it may end slowly, or its eviction be refused again.
        """
        while True:
            reason = await self._due.get()
            self._tried &= self._running
            chosen = governor.candidate(self._directory.lower(), self._running, self._tried)
            if chosen is not None and self._api is not None:
                self._tried.add(chosen.pod)
                await self._ask(self._api, chosen, reason)

    async def _ask(self, api: Api, chosen: PodFacts, reason: Reason) -> None:
        """Ask for the eviction of a pod."""
        try:
            await evictor.evict(api, chosen)
        except answer.Missing:
            self._health.recover(_EVICTION)
        except answer.Trouble as trouble:
            EVICTIONS.labels("refused").inc()
            self._health.degrade(_EVICTION, str(trouble))
        else:
            EVICTIONS.labels("evicted").inc()
            self._health.recover(_EVICTION)
            log.warning("pod.evicted", extra={"pod": f"{chosen.namespace}/{chosen.name}", "reason": reason})
