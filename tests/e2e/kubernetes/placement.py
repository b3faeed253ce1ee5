"""Placing bursts of pods that start slowly on nodes that nearly fill up, while parts of spazio are killed.

    python -m tests.e2e.kubernetes.placement --nodes 300 --pods 3000 \
        --variant plain|restart|replicas|silence|outage|graded|stampede|change

A pod shows up in its node's telemetry two seconds after it is bound, so a reader of telemetry alone gives the
same room away many times over. There are more pods than places; a fifth of the pods ends after three quarters of a
minute and makes room for the rest. In a stampede all pods come at once, none ends, and nothing is known of them: each
has a thread that never sleeps, and requests next to nothing. In a change small services come first, then such pods and
others that hold memory, and a fifth ends after twenty seconds. In an outage both replicas are killed while every node
is silent.
"""

import argparse
import asyncio
import math
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.e2e.kubernetes import lab
from tests.e2e.kubernetes.families import GIB, HOLDING, PLAIN, SMALL, SOAKING, Family, Size
from tests.e2e.kubernetes.lab import Lab
from tests.e2e.kubernetes.scheduling import verdict
from tests.e2e.kubernetes.scheduling.observer import Observer, now_us, observing

_BURST_SECONDS = 3.0
_STORIES = 3
DOWN_SECONDS = 3.0  # for which a killed extender stays dead
_QUIET_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Scene:
    """What a variant places, and where.

    Attributes:
        families: Of the pods, in parts of equal size: within each part they take turns.
        size: Of a node.
        process: Settings of the processors.
        bursts: How many the pods come in.
        ending: One of so many pods ends; 0: none does.
        life_seconds: After which it does.
        patience_seconds: Without a single bind until the run is over.
    """

    families: tuple[tuple[Family, ...], ...]
    size: Size
    process: Mapping[str, str] = field(default_factory=dict)
    bursts: int = 10
    ending: int = 5
    life_seconds: int = 45
    patience_seconds: float = 60.0

    def family(self, number: int, pods: int) -> Family:
        """Return the family of one of so many pods."""
        part = self.families[number * len(self.families) // pods]
        return part[number % len(part)]

    def takes(self) -> dict[str, tuple[float, float]]:
        """Return by class what a pod takes of its node."""
        return {each.name: each.takes(self.size) for part in self.families for each in part}


_ASSUMED = {
    "SPAZIO_ESTIMATE_POD_CORES": str(PLAIN.cores),
    "SPAZIO_ESTIMATE_POD_MEMORY_BYTES": str(PLAIN.memory),
}
_KNOWN = Scene(((PLAIN,),), Size(4, 16 * GIB), _ASSUMED)
_MODEST = replace(SOAKING, requests={"cpu": "50m", "memory": "32Mi"})
_STAMPEDE = Scene(((SOAKING, _MODEST),), Size(2, 8 * GIB), bursts=1, ending=0, patience_seconds=20.0)
_CHANGE = Scene(((SMALL,), (SOAKING, HOLDING)), Size(4, 16 * GIB), bursts=6, life_seconds=20, patience_seconds=20.0)
VARIANTS = dict.fromkeys(("plain", "restart", "replicas", "silence", "outage", "graded"), _KNOWN) | {
    "stampede": _STAMPEDE,
    "change": _CHANGE,
}


async def place(folder: Path, nodes: int, pods: int, variant: str, **extender: str) -> dict[str, Any]:
    """Run a variant; returns what came of it.

    Args:
        folder: For everything, logs among it.
        nodes: Number of nodes.
        pods: Number of pods.
        variant: Which of `VARIANTS`.
        extender: More settings of the extender.
    """
    environ = {"SPAZIO_EXTENDER_MODE": "graded"} if variant == "graded" else {}
    scene, replicas = VARIANTS[variant], 2 if variant in ("replicas", "outage") else 1
    asked: dict[str, Any] = {"variant": variant, "nodes": nodes, "pods": pods}
    async with lab.lab(
        folder,
        nodes=nodes,
        size=scene.size,
        replicas=replicas,
        process=scene.process,
        extender={**environ, **extender},
    ) as running:
        began = time.monotonic()
        async with observing(running.plane, running.client, scene.takes()) as observer:
            await asyncio.sleep(5)  # every node reports within four
            disturbing = asyncio.create_task(_disturb(running, variant))
            await _burst(running, scene, pods)
            await disturbing
            await _until_placed(observer, pods, scene.patience_seconds)
            await asyncio.sleep(1)
            until_us, shares = now_us(), lab.figures(running.services, time.monotonic() - began)
        if scene is _KNOWN:
            rooms = [int(reports[0].room) for reports in observer.record.reports.values()]
            asked |= {"places": sum(rooms), "fit_on_a_node": max(rooms)}
        return asked | judged(observer, until_us) | shares


def judged(observer: Observer, until_us: int) -> dict[str, Any]:
    """Return the verdict on what was observed until a time."""
    record = observer.record
    # How many pods of another class a pod displaces is known within bounds only, so several are judged by truth alone.
    result = list(verdict.excesses(record)) if len(record.takes) == 1 else []
    beyond = list(verdict.beyond(record))
    bound = [pod for pod in record.pods.values() if pod.bound_us < verdict.NEVER]
    waits = [(pod.bound_us - pod.created_us) / 1e6 for pod in bound]
    queued = [(pod.asked_us - pod.created_us) / 1e6 for pod in bound if pod.asked_us < verdict.NEVER]
    first, last = min((pod.bound_us for pod in bound), default=0), max((pod.bound_us for pod in bound), default=1)
    seconds = [each.seconds for each in observer.decisions]
    return {
        "placed": len(bound),
        "unplaced": observer.unbound,
        "overcommitted": len(result),
        "beyond_policy": len(beyond),
        "most_taken": round(1 - min((each.room for each in beyond), default=0.0), 3),
        "placed_by_class": dict(Counter(pod.workload for pod in bound)),
        "worst_room": round(min((each.room for each in result), default=1.0), 2),
        "stories": [verdict.story(record, each) for each in (result + beyond)[:_STORIES]],
        "most_on_a_node": verdict.most_at_once(record),
        "open_at_end": {name: verdict.open_room(record, until_us, name) for name in record.takes},
        "waited_by_open_room_seconds": max(verdict.waits(record, until_us).values(), default=0.0),
        "with_the_scheduler_s_queue": max(verdict.waits(record, until_us, math.inf).values(), default=0.0),
        "queue_seconds_p99": round(verdict.quantile(queued, 0.99), 2),
        "bind_seconds_p50": round(statistics.median(observer.seconds or [0.0]), 3),
        "bind_seconds_max": round(max(observer.seconds, default=0.0), 3),
        "pending_seconds_p50": round(verdict.quantile(waits, 0.5), 2),
        "pending_seconds_p99": round(verdict.quantile(waits, 0.99), 2),
        "binds_per_second": round(len(bound) / max(1e-6, (last - first) / 1e6), 1),
        "decisions": len(observer.decisions),
        "answer_ms_p50": round(1000 * verdict.quantile(seconds, 0.5), 2),
        "answer_ms_p99": round(1000 * verdict.quantile(seconds, 0.99), 2),
        "unguaranteed": sum(each.outcome == "placed" and not each.guaranteed for each in observer.decisions),
    }


async def _burst(running: Lab, scene: Scene, pods: int) -> None:
    size = -(-pods // scene.bursts)
    for start in range(0, pods, size):
        began = time.monotonic()
        burst = range(start, min(pods, start + size))
        await asyncio.gather(*(_add_pod(running, scene, number, pods) for number in burst))
        await asyncio.sleep(max(0.0, _BURST_SECONDS - (time.monotonic() - began)))


async def _add_pod(running: Lab, scene: Scene, number: int, pods: int) -> None:
    ends = {"kwok.run-time": f"{scene.life_seconds}s"} if scene.ending and number % scene.ending == 0 else {}
    await running.pod(f"pod-{number}", scene.family(number, pods), **ends)


async def _disturb(running: Lab, variant: str) -> None:
    """Do harm in the middle."""
    harms = []
    if variant in ("restart", "replicas", "outage"):
        harms.append(_kill_extenders(running))
    if variant in ("silence", "outage"):
        harms.append(_silence(running))
    await asyncio.gather(*harms)


async def _kill_extenders(running: Lab) -> None:
    for service in running.extenders:
        await asyncio.sleep(_BURST_SECONDS * 3)
        service.kill()
        await asyncio.sleep(DOWN_SECONDS)
        service.start()


async def _silence(running: Lab) -> None:
    await asyncio.sleep(_BURST_SECONDS * 3)
    running.services["load"].send(signal.SIGSTOP)
    await asyncio.sleep(_QUIET_SECONDS)
    running.services["load"].send(signal.SIGCONT)


async def _until_placed(observer: Observer, pods: int, patience_seconds: float) -> None:
    """Wait until every pod is bound, or until none was for long."""
    deadline, most = time.monotonic() + patience_seconds, 0
    while most < pods and time.monotonic() < deadline:
        placed = len(observer.record.pods) - observer.unbound
        if placed > most:
            most, deadline = placed, time.monotonic() + patience_seconds
        await asyncio.sleep(0.5)


def main() -> int:
    """Run one variant and print its figures; status 1 if pods were overcommitted where they must not be."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.kubernetes.placement", description=__doc__)
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--variant", choices=VARIANTS, default="plain")
    parser.add_argument("--keep", type=Path, help="folder to run in; logs stay there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(place(given.keep or Path(folder), given.nodes, given.pods, given.variant))
    lab.report(result)
    return int(result["overcommitted"] + result["beyond_policy"] > 0 and given.variant != "graded")


if __name__ == "__main__":
    sys.exit(main())
