"""Watches a cluster from outside while pods are placed: the API server's own events, nodes' reports, decisions."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from nats.aio.client import Client

from bus import stream
from bus.reading.reader import Reader
from schemas import codec
from schemas.messages.estimate import MOSTLY_ASSUMED, Availability, ClassRoom
from schemas.messages.placement import Decision
from schemas.subject import Names
from tests.e2e.kubernetes.control_plane import ControlPlane
from tests.e2e.kubernetes.scheduling.verdict import NEVER, Pod, Record, Report

NAMES = Names()


def now_us() -> int:
    return time.time_ns() // 1000


class Observer:
    """A record that grows by itself.

    Attributes:
        record: What was seen.
        decisions: All decisions, as they came.
        seconds: From the decision to the bind, of each pod with both.
    """

    def __init__(self, takes: Mapping[str, tuple[float, ...]]) -> None:
        """See nothing yet.

        Args:
            takes: As in `Record`, of all classes whose pods are placed.
        """
        self.record, self.decisions = Record(takes=takes), list[Decision]()
        self._decided: dict[str, list[tuple[int, str]]] = {}

    @property
    def seconds(self) -> list[float]:
        pods = self.record.pods.values()
        return [
            (pod.bound_us - pod.decided_us) / 1e6 for pod in pods if pod.bound_us < NEVER and pod.decided_us < NEVER
        ]

    @property
    def unbound(self) -> int:
        return sum(pod.bound_us == NEVER and pod.ended_us == NEVER for pod in self.record.pods.values())

    def settle(self) -> None:
        """Join decisions to pods, once both have been seen: the last one that was made before the bind."""
        for pod in self.record.pods.values():
            about = self._decided.get(pod.uid, [])
            pod.asked_us = min((at_us for at_us, _ in about), default=NEVER)
            made = [each for each in about if each[0] <= pod.bound_us and each[1]]
            if made:
                pod.decided_us, pod.decided = made[-1]

    def take_report(self, availability: Availability, came_us: int) -> None:
        """Take a node's report."""
        # Of a class that nobody has seen a node takes one pod at a time.
        classes = {name: (own.available, _sure(own)) for name, own in (availability.classes or {}).items()}
        sure = min(availability.lower, 1.0)
        report = Report(came_us, availability.at_us, availability.available, sure, classes)
        self.record.reports[availability.node].append(report)

    def take_event(self, event: dict[str, Any], came_us: int) -> None:
        """Take an event of the API server's watch of pods."""
        thing = event["object"]
        uid, node, phase = thing["metadata"]["uid"], thing["spec"].get("nodeName", ""), thing["status"].get("phase")
        workload = thing["metadata"]["labels"]["spazio.class"]
        pod = self.record.pods.setdefault(uid, Pod(uid, came_us, workload=workload))
        if node and not pod.node:
            pod.node, pod.bound_us = node, came_us
            self.record.bound[node].append(pod)
        if phase == "Running":
            pod.running_us = min(pod.running_us, came_us)
        if phase in ("Succeeded", "Failed") or event["type"] == "DELETED":
            pod.ended_us = min(pod.ended_us, came_us)

    async def watch(self, plane: ControlPlane, begun: asyncio.Event) -> None:
        """Follow all pods from now on."""
        headers = {"Authorization": "Bearer admin-token"}
        connector, patience = aiohttp.TCPConnector(ssl=False), aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(headers=headers, connector=connector, timeout=patience) as session:
            url = f"{plane.url}/api/v1/pods"
            async with session.get(url) as response:
                version = (await response.json())["metadata"]["resourceVersion"]
            while True:  # the API server ends the watch of a slow reader
                query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "3600"}
                async with session.get(url, params=query, read_bufsize=1 << 20) as response:
                    begun.set()
                    async for line in response.content:
                        event = json.loads(line)
                        assert event["type"] != "ERROR", event
                        version = event["object"]["metadata"]["resourceVersion"]
                        self.take_event(event, now_us())

    async def hear(self, client: Client) -> None:
        """Follow what nodes report; it was published when the server stored it, however late we are."""
        subject = NAMES.of("availability", "*")
        following = await client.jetstream().subscribe(subject, stream=NAMES.estimates, ordered_consumer=True)
        async for message in following.messages:
            stored_us = round(message.metadata.timestamp.timestamp() * 1e6)
            self.take_report(codec.decode(Availability, message.data), stored_us)

    async def ask(self, client: Client) -> None:
        """Follow what was decided."""
        after = (await stream.describe(client, NAMES.events)).last
        async with Reader(client, NAMES.events, [NAMES.of("decision", ">")], after=after) as reader:
            while True:
                for message in await reader.read():
                    decision = codec.decode(Decision, message.data)
                    self.decisions.append(decision)
                    self._decided.setdefault(decision.pod, []).append((decision.at_us, decision.node or ""))


def _sure(own: ClassRoom) -> float:
    """Return how many pods of a class a node takes at a time, by the rule of ADR 24.

    While the cost is mostly assumed it takes one pod, and then as many as its lower bound says as far as the cost is
    evidence, in full from four fifths on.
    """
    assumed, one_pod = own.prior or 0.0, min(own.lower, 1.0)
    return one_pod if assumed > MOSTLY_ASSUMED else max(one_pod, own.lower * min(1.0, (1.0 - assumed) / 0.8))


@asynccontextmanager
async def observing(
    plane: ControlPlane, client: Client, takes: Mapping[str, tuple[float, ...]]
) -> AsyncIterator[Observer]:
    """Observe for the length of a block; the record is whole when it has ended. `takes` is as in `Record`."""
    observer, begun = Observer(takes), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        work = (observer.watch(plane, begun), observer.hear(client), observer.ask(client))
        tasks = [group.create_task(each) for each in work]
        await begun.wait()
        yield observer
        for task in tasks:
            task.cancel()
    observer.settle()
