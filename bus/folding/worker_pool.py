"""All tasks of one replica: it stands by for each, keeps its fair share, and reports which tasks it holds.

Replicas find each other through the NATS services API. There is no election. Each replica counts the others and
releases the tasks beyond its share; the server gives them to a replica that waits. A wrong count costs one hand-over.
"""

import asyncio
import contextlib
import json
import logging
import os
import random
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import nats.errors
from nats import micro
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.micro.request import Request
from nats.micro.service import EndpointConfig, Service
from prometheus_client import Gauge

from bus.folding.task_runner import TaskRunner
from schemas.messages.base import RELEASE

log = logging.getLogger(__name__)

_LOOK_SECONDS = 4.0
_ANSWER_SECONDS = 0.4
_SETTLE_SECONDS = 3.0
_LEAVE_SECONDS = 2.0  # for the others to take a released task, before this replica stands by again
_ROLE = "process"

OWNED = Gauge("spazio_part_owned", "1 while this replica does the part", ["part"])
LAG = Gauge("spazio_part_lag_messages", "messages behind the last one folded", ["part"])


class Replica(NamedTuple):
    """One replica's report.

    Attributes:
        identity: Id of its instance in the NATS services API.
        host: Name of its host.
        pid: Id of its process.
        version: Version of spazio.
        parts: Tasks that it holds, by name: `sequence` and `lag` in messages, `since_us`, and `nodes` where known.
    """

    identity: str
    host: str
    pid: str
    version: str
    parts: dict[str, dict[str, Any]]


async def replicas(client: Client, name: str, *, wait_seconds: float = _ANSWER_SECONDS) -> list[Replica]:
    """Ask all replicas for a report and return those that answer in time, sorted by host and pid.

    A server may deliver the request or an answer several times, as `bus.accounting.exchange` says.

    Args:
        client: Connection.
        name: Name of the service: the prefix.
        wait_seconds: Time to wait for answers.
    """
    reports: dict[tuple[str, str], Replica] = {}

    async def collect(message: Msg) -> None:
        stats = json.loads(message.data)
        for endpoint in stats.get("endpoints") or []:
            if stats.get("metadata", {}).get("role") == _ROLE:
                metadata, parts = stats["metadata"], (endpoint.get("data") or {}).get("parts", {})
                replica = Replica(stats["id"], metadata["host"], metadata["pid"], stats["version"], parts)
                reports[replica.identity, endpoint.get("name", "")] = replica

    inbox = client.new_inbox()
    listening = await client.subscribe(inbox, cb=collect)
    try:
        await client.publish(f"$SRV.STATS.{name}", reply=inbox)
        await asyncio.sleep(wait_seconds)
    finally:
        await listening.unsubscribe()
    return sorted(reports.values(), key=lambda replica: (replica.host, replica.pid))


class WorkerPool:
    """The task runners of one replica."""

    def __init__(
        self, client: Client, name: str, runners: Sequence[TaskRunner], about: Callable[[str], dict[str, Any]]
    ) -> None:
        """Take the runners of all tasks; `about` returns additional fields of a report by the name of a task."""
        self._client, self._name, self._runners, self._about = client, name, runners, about

    async def run(self) -> None:
        """Run all tasks until cancelled."""
        async with asyncio.TaskGroup() as group:
            for runner in self._runners:
                group.create_task(runner.run(), name=runner.task.consumer)
            group.create_task(self._share())

    def parts(self) -> dict[str, dict[str, Any]]:
        """Return the tasks that this replica holds now, by name."""
        return {
            runner.task.name: {
                "sequence": runner.sequence,
                "lag": runner.lag,
                "since_us": round(runner.since * 1e6),
                **self._about(runner.task.name),
            }
            for runner in self._runners
            if runner.since
        }

    async def _share(self) -> None:
        service = await self._announced()
        try:
            while True:
                await asyncio.sleep(_LOOK_SECONDS * random.uniform(0.75, 1.25))  # noqa: S311 # no secret
                try:
                    await self._balance(service.id)
                except (nats.errors.Error, TimeoutError, OSError, ValueError, LookupError) as error:
                    log.debug("pool.balance_failed", extra={"reason": repr(error)})
        finally:
            if self._client.is_connected:
                # `stop` waits for the server for each subscription, and fails if the connection breaks meanwhile.
                with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
                    async with asyncio.timeout(_ANSWER_SECONDS):
                        await service.stop()

    async def _announced(self) -> Service:
        """Announce the service until the server accepts it, and return it."""
        while True:
            try:
                return await self._announce()
            except (nats.errors.Error, TimeoutError, OSError) as error:
                log.warning("pool.announcement_failed", extra={"reason": repr(error)})
            await asyncio.sleep(_LOOK_SECONDS)

    async def _announce(self) -> Service:
        metadata = {"role": _ROLE, "host": socket.gethostname(), "pid": str(os.getpid())}
        service = await micro.add_service(
            self._client,
            name=self._name,
            version=RELEASE,
            description="folds telemetry into availability; stats say which parts each replica does",
            metadata=metadata,
            stats_handler=lambda _: {"parts": self.parts()},
        )

        async def answer(request: Request) -> None:
            await request.respond(json.dumps({"parts": self.parts()}).encode())

        subject = f"{self._name}.process.{service.id}"
        await service.add_endpoint(EndpointConfig(name="parts", handler=answer, subject=subject))
        return service

    async def _balance(self, own: str) -> None:
        """Release the tasks beyond a fair share, the newest first.

        Exceptions are tasks that this replica has just taken over, most likely from a replica that died, or that are
        still refolding: a second take-over would delay their rows again.
        """
        for runner in self._runners:
            OWNED.labels(runner.task.name).set(bool(runner.since))
            LAG.labels(runner.task.name).set(runner.lag if runner.since else 0)
        others = [replica for replica in await replicas(self._client, self._name) if replica.identity != own]
        held = sorted((runner for runner in self._runners if runner.since), key=lambda runner: runner.since)
        taken = sum(len(replica.parts) for replica in others) + len(held)
        share = -(-taken // (len(others) + 1))
        settled = time.time() - _SETTLE_SECONDS
        for runner in held[share:]:
            if runner.since > settled or runner.refolding:
                continue
            log.info("task.released", extra={"part": runner.task.name, "replicas": len(others) + 1})
            runner.stand_down(_LEAVE_SECONDS)
