"""All parts of the work in one replica: it stands by for each, keeps its fair share, and says what it has.

Replicas find each other through the NATS services API. There is no election: each looks how many there are and gives
back what it has too many; the server gives that to one that waits. A wrong count costs a hand-over and nothing else.
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

from bus.folding.task_runner import Owner
from schemas.messages.base import RELEASE

log = logging.getLogger(__name__)

_LOOK_SECONDS = 4.0
_ANSWER_SECONDS = 0.4
_SETTLE_SECONDS = 3.0
_LEAVE_SECONDS = 2.0  # left to the others before we stand by again
_ROLE = "process"

OWNED = Gauge("spazio_part_owned", "1 while this replica does the part", ["part"])
LAG = Gauge("spazio_part_lag_messages", "messages behind the last one folded", ["part"])


class Replica(NamedTuple):
    """What one replica says of itself.

    Attributes:
        identity: Its instance, as the NATS services API names it.
        host: Where it runs.
        pid: Its process.
        version: Of spazio.
        parts: What it does, by part: `sequence` and `lag` in messages, `since_us`, `nodes` where it knows.
    """

    identity: str
    host: str
    pid: str
    version: str
    parts: dict[str, dict[str, Any]]


async def replicas(client: Client, name: str, *, wait_seconds: float = _ANSWER_SECONDS) -> list[Replica]:
    """Ask all replicas what they do, and return what has been answered in time, by host and pid.

    Args:
        client: Connection.
        name: Of the service: the prefix.
        wait_seconds: How long to listen.
    """
    found: list[Replica] = []

    async def collect(message: Msg) -> None:
        said = json.loads(message.data)
        for endpoint in said.get("endpoints") or []:
            if said.get("metadata", {}).get("role") == _ROLE:
                about, parts = said["metadata"], (endpoint.get("data") or {}).get("parts", {})
                found.append(Replica(said["id"], about["host"], about["pid"], said["version"], parts))

    inbox = client.new_inbox()
    listening = await client.subscribe(inbox, cb=collect)
    try:
        await client.publish(f"$SRV.STATS.{name}", reply=inbox)
        await asyncio.sleep(wait_seconds)
    finally:
        await listening.unsubscribe()
    return sorted(found, key=lambda one: (one.host, one.pid))


class Crew:
    """The owners of one replica."""

    def __init__(
        self, client: Client, name: str, owners: Sequence[Owner], about: Callable[[str], dict[str, Any]]
    ) -> None:
        """Take the owners of all parts; `about` tells more of a part by its name."""
        self._client, self._name, self._owners, self._about = client, name, owners, about

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for owner in self._owners:
                group.create_task(owner.run(), name=owner.part.consumer)
            group.create_task(self._share())

    def parts(self) -> dict[str, dict[str, Any]]:
        """Return what this replica does now, by part."""
        return {
            owner.part.name: {
                "sequence": owner.sequence,
                "lag": owner.lag,
                "since_us": round(owner.since * 1e6),
                **self._about(owner.part.name),
            }
            for owner in self._owners
            if owner.since
        }

    async def _share(self) -> None:
        service = await self._announced()
        try:
            while True:
                await asyncio.sleep(_LOOK_SECONDS * random.uniform(0.75, 1.25))  # noqa: S311 # no secret
                try:
                    await self._balance(service.id)
                except (nats.errors.Error, TimeoutError, OSError, ValueError, LookupError) as error:
                    log.debug("crew.unbalanced", extra={"reason": repr(error)})
        finally:
            if self._client.is_connected:
                # It waits for the server for each subscription, and fails where the connection breaks meanwhile.
                with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
                    async with asyncio.timeout(_ANSWER_SECONDS):
                        await service.stop()

    async def _announced(self) -> Service:
        """Return our service, as soon as the server has taken note of it."""
        while True:
            try:
                return await self._announce()
            except (nats.errors.Error, TimeoutError, OSError) as error:
                log.warning("crew.unannounced", extra={"reason": repr(error)})
            await asyncio.sleep(_LOOK_SECONDS)

    async def _announce(self) -> Service:
        about = {"role": _ROLE, "host": socket.gethostname(), "pid": str(os.getpid())}
        service = await micro.add_service(
            self._client,
            name=self._name,
            version=RELEASE,
            description="folds telemetry into availability; stats say which parts each replica does",
            metadata=about,
            stats_handler=lambda _: {"parts": self.parts()},
        )

        async def answer(request: Request) -> None:
            await request.respond(json.dumps({"parts": self.parts()}).encode())

        subject = f"{self._name}.process.{service.id}"
        await service.add_endpoint(EndpointConfig(name="parts", handler=answer, subject=subject))
        return service

    async def _balance(self, own: str) -> None:
        """Give back what is more than a fair share, the parts that came last first.

        But for what came just now, most likely from a replica that died, and is not up to date yet: those who wait for
        its rows would wait for a second take-over too.
        """
        for owner in self._owners:
            OWNED.labels(owner.part.name).set(bool(owner.since))
            LAG.labels(owner.part.name).set(owner.lag if owner.since else 0)
        others = [one for one in await replicas(self._client, self._name) if one.identity != own]
        mine = sorted((owner for owner in self._owners if owner.since), key=lambda owner: owner.since)
        taken = sum(len(one.parts) for one in others) + len(mine)
        share = -(-taken // (len(others) + 1))
        settled = time.time() - _SETTLE_SECONDS
        for owner in mine[share:]:
            if owner.since > settled or owner.refolding:
                continue
            log.info("crew.given_back", extra={"part": owner.part.name, "replicas": len(others) + 1})
            owner.stand_down(_LEAVE_SECONDS)
