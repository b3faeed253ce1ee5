"""Predictive scaling: raises minReplicas of autoscalers that opt in to the forecast, before the load comes.

The HorizontalPodAutoscaler stays in control: the floor only prevents fewer pods than the forecast asks for, and never
exceeds maxReplicas. The sink raises a floor at once and lowers it after forecasts were lower for a while. It restores
the owner's value when forecasts are low or too old, when the owner opts out, and when the sink ends. Forecasts without
a rise ask for nothing, because the autoscaler scales down by itself. How many pods a forecast takes follows from the
autoscaler's own targets (`target`).

Only the holder of the Lease writes: another process would take the floors that it does not raise itself for leftovers.
What a killed one left is taken over by the next holder.
"""

import asyncio
import functools
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import Gauge

from kube import answer, apply
from sinks.kubernetes import autoscaler, target
from sinks.kubernetes.autoscaler import RESOURCE, Order, Scaler
from sinks.kubernetes.objects import Objects
from sinks.kubernetes.writing.access import Access
from sinks.kubernetes.writing.writer import Write, Writer

log = logging.getLogger(__name__)

_RACES = 3
_AT_ONCE = 16
_MERGE = "application/merge-patch+json"

RAISED = Gauge("spazio_kube_floors_raised", "autoscalers whose minReplicas is raised to a forecast")
YIELDED = Gauge("spazio_kube_floors_yielded", "autoscalers whose minReplicas somebody else set while it was raised")


class Floor:
    """Keeps the floors of all autoscalers that opt in."""

    def __init__(self, access: Access, scalers: Objects[Scaler]) -> None:
        """Create the part; it writes nothing before `refresh`."""
        self._api, self._scalers, self._latest = access.api, scalers, access.latest
        self._output, self._lease, self._clock = access.output, access.lease, access.clock
        self._marks = autoscaler.marks(access.output.floor_annotation)
        self._asked: dict[str, list[tuple[float, int]]] = {}

    @property
    def needed(self) -> bool:
        """Whether an autoscaler has opted in, or has what must be restored."""
        floor = self._output.floor
        return any((floor and scaler.wanted) or scaler.marked or scaler.managed for _, scaler in self._scalers)

    async def refresh(self, writer: Writer) -> bool:
        """Write due changes; returns False while the state is not loaded completely, or another process may write.

        Args:
            writer: Sends the writes.
        """
        if not self._scalers.whole or not self._latest.current.is_set():
            return False
        if self.needed and not await self._lease.acquire():
            writer.rest()
            return False
        await writer.write(
            self._due(self._clock()), done=lambda _, thing: self._scalers.put(thing), gone=self._scalers.drop
        )
        scalers = [scaler for _, scaler in self._scalers]
        RAISED.set(sum(scaler.held for scaler in scalers))
        YIELDED.set(sum(scaler.yielded for scaler in scalers))
        return True

    async def end(self) -> None:
        """Restore every raised floor, from the current state of the API server, if this process holds the Lease."""
        if not (self._lease.held and self.needed):
            return
        room = asyncio.Semaphore(_AT_ONCE)

        async def restore(scaler: Scaler) -> None:
            races = 0
            async with room:
                while (order := autoscaler.decide(scaler, 0)) is not None:
                    try:
                        scaler = self._read(await self._carry_out(scaler, order))
                    except answer.Conflict as conflict:
                        races += 1
                        if conflict.managers or races > _RACES:
                            raise
                        now = await self._list(f"metadata.namespace={scaler.namespace},metadata.name={scaler.name}")
                        if not now:
                            return  # the autoscaler is deleted
                        scaler = now[0]

        try:
            scalers = await self._list()
            # Values of others keep their mark, so that the next process leaves them alone, too.
            ours = [scaler for scaler in scalers if scaler.marked or (scaler.managed and not scaler.yielded)]
            results = await asyncio.gather(*map(restore, ours), return_exceptions=True)
        except (answer.Trouble, KeyError, TypeError, ValueError) as error:
            results = [error]
        for result in results:
            if isinstance(result, BaseException):
                log.warning(
                    "floor.restore_failed",
                    extra={"reason": str(result), "remedy": "the next start of the sink restores it"},
                )

    async def _list(self, fields: str = "") -> list[Scaler]:
        """Return current autoscalers, also for a single one: the sink has the right to list, but not to get."""
        listed = await self._api.send("GET", f"/apis/{RESOURCE}", query={"fieldSelector": fields} if fields else None)
        return [self._read(thing) for thing in listed["items"]]

    def _due(self, now: float) -> Iterator[Write]:
        present = dict(self._scalers)
        self._asked = {key: self._asked[key] for key in present if key in self._asked}
        for key, scaler in present.items():
            order = autoscaler.decide(scaler, self._goal(key, scaler, now))
            if order is not None:
                yield Write(key, functools.partial(self._carry_out, scaler, order))

    def _goal(self, key: str, scaler: Scaler, now: float) -> int:
        """Return the largest recent demand of the forecasts; 0: none."""
        forecast = self._latest.forecasts.get(scaler.workload)
        fresh = forecast is not None and abs(now - forecast.at_us / 1e6) <= self._output.forecast_seconds
        if not (self._output.floor and scaler.wanted) or forecast is None or not fresh:
            self._asked.pop(key, None)
            return 0
        asked = self._asked.get(key)
        if asked is None:
            # When the forecast was so high for one that an earlier run raised is unknown: it counts from now.
            asked = [(now, scaler.raised or 0)]
        asked = [(at, pods) for at, pods in asked if abs(now - at) < self._output.floor_seconds]
        asked.append((now, target.pods(forecast, scaler.targets)))
        self._asked[key] = asked
        return max(pods for _, pods in asked)

    async def _carry_out(self, scaler: Scaler, order: Order) -> dict[str, Any]:
        """Write an order; a change of the autoscaler by others is not overwritten."""
        if not self._lease.held:
            raise answer.Conflict("the Lease has expired")
        path = _path(scaler)
        metadata: dict[str, Any] = {"resourceVersion": scaler.version}
        if order.release:
            # This keeps the field without a manager; an apply without the field would remove it.
            metadata["managedFields"] = scaler.fields or [{}]
            return await self._api.send("PATCH", path, {"metadata": metadata}, kind=_MERGE)
        notes = {}
        if order.own is not None:
            notes = {self._marks.own: str(order.own), self._marks.raised: str(order.minimum)}
        if order.yielded:
            notes[self._marks.yielded] = str(scaler.minimum)
        thing: dict[str, Any] = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": metadata | {"name": scaler.name, "namespace": scaler.namespace, "annotations": notes},
        }
        if order.minimum is not None:
            thing["spec"] = {"minReplicas": order.minimum}
        # The apply has no other fields, so it takes none from their managers.
        made = await apply.apply(self._api, path, thing, force=True)
        made = await self._unmark(path, made, notes)
        log.info(
            "floor.moved",
            extra={
                "autoscaler": f"{scaler.namespace}/{scaler.name}",
                "before": scaler.minimum,
                "after": scaler.minimum if order.minimum is None else order.minimum,
                "why": "raised" if order.own is not None else "set by somebody else" if order.yielded else "restored",
            },
        )
        return made

    async def _unmark(self, path: str, thing: dict[str, Any], notes: Mapping[str, str]) -> dict[str, Any]:
        """Remove marks that an apply has kept because somebody else has set them, too."""
        there = thing["metadata"].get("annotations") or {}
        left = {mark for mark in self._marks[1:] if mark in there} - set(notes)
        if not left:
            return thing
        metadata = {"resourceVersion": thing["metadata"]["resourceVersion"], "annotations": dict.fromkeys(left)}
        return await self._api.send("PATCH", path, {"metadata": metadata}, kind=_MERGE)

    def _read(self, thing: Mapping[str, Any]) -> Scaler:
        return autoscaler.reader(self._output.floor_annotation)(thing)


def _path(scaler: Scaler) -> str:
    return f"/apis/autoscaling/v2/namespaces/{scaler.namespace}/horizontalpodautoscalers/{scaler.name}"
