"""Placing bursts of pods that start slowly on nodes that nearly fill up, while parts of spazio are killed.

    python -m tests.e2e.kubernetes.placement --nodes 300 --pods 3000 --variant plain|restart|replicas|silence|graded

A pod shows up in its node's telemetry two seconds after it is bound, so whoever looks at telemetry alone gives the
same room away many times over. There are more pods than places; a fifth of the pods ends after three quarters of a
minute and makes room for the rest.
"""

import argparse
import asyncio
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.e2e.kubernetes import lab, verdict
from tests.e2e.kubernetes.lab import WORKLOAD, Lab
from tests.e2e.kubernetes.observer import Observer, now_us, observing

VARIANTS = ("plain", "restart", "replicas", "silence", "graded")
_BURSTS = 10
_BURST_SECONDS = 3.0
_FIFTH = 5
_STORIES = 3
_DOWN_SECONDS = 3.0
_QUIET_SECONDS = 60.0
_PATIENCE_SECONDS = 60.0  # without a single bind


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
    replicas = 2 if variant == "replicas" else 1
    async with lab.lab(folder, nodes=nodes, replicas=replicas, extender={**environ, **extender}) as running:
        began = time.monotonic()
        async with observing(running.plane, running.client, WORKLOAD) as observer:
            await asyncio.sleep(5)  # every node reports within four
            disturbing = asyncio.create_task(_disturb(running, variant))
            await _burst(running, pods)
            await disturbing
            await _until_placed(observer, pods)
            await asyncio.sleep(1)
            until_us, shares = now_us(), lab.figures(running.services, time.monotonic() - began)
        rooms = [int(reports[0].room) for reports in observer.record.reports.values()]
        asked = {"variant": variant, "nodes": nodes, "pods": pods, "places": sum(rooms), "fit_on_a_node": max(rooms)}
        return asked | judged(observer, until_us) | shares


def judged(observer: Observer, until_us: int) -> dict[str, Any]:
    """Return the verdict on what was observed until a time."""
    record = observer.record
    found = list(verdict.excesses(record))
    bound = [pod for pod in record.pods.values() if pod.bound_us < verdict.NEVER]
    waits = [(pod.bound_us - pod.created_us) / 1e6 for pod in bound]
    queued = [(pod.asked_us - pod.created_us) / 1e6 for pod in bound if pod.asked_us < verdict.NEVER]
    first, last = min((pod.bound_us for pod in bound), default=0), max((pod.bound_us for pod in bound), default=1)
    idle = verdict.idle_waits(record, until_us)
    seconds = [each.seconds for each in observer.decisions]
    return {
        "placed": len(bound),
        "unplaced": observer.unbound,
        "overcommitted": len(found),
        "worst_room": round(min((each.room for each in found), default=1.0), 2),
        "stories": [verdict.story(record, each) for each in found[:_STORIES]],
        "most_on_a_node": verdict.most_at_once(record),
        "open_at_end": verdict.open_room(record, until_us),
        "waited_by_open_room_seconds": max(idle.values(), default=0.0),
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


async def _burst(running: Lab, pods: int) -> None:
    size = -(-pods // _BURSTS)
    for start in range(0, pods, size):
        began = time.monotonic()
        await asyncio.gather(*(_one(running, number) for number in range(start, min(pods, start + size))))
        await asyncio.sleep(max(0.0, _BURST_SECONDS - (time.monotonic() - began)))


async def _one(running: Lab, number: int) -> None:
    ends = {"kwok.run-time": "45s"} if number % _FIFTH == 0 else {}
    await running.pod(f"pod-{number}", **ends)


async def _disturb(running: Lab, variant: str) -> None:
    """Do harm in the middle."""
    if variant in ("restart", "replicas"):
        for service in running.extenders:
            await asyncio.sleep(_BURST_SECONDS * 3)
            service.kill()
            await asyncio.sleep(_DOWN_SECONDS)
            service.start()
    elif variant == "silence":
        await asyncio.sleep(_BURST_SECONDS * 3)
        running.services["load"].send(signal.SIGSTOP)
        await asyncio.sleep(_QUIET_SECONDS)
        running.services["load"].send(signal.SIGCONT)


async def _until_placed(observer: Observer, pods: int) -> None:
    """Wait until every pod is bound, or until none was for long."""
    deadline, most = time.monotonic() + _PATIENCE_SECONDS, 0
    while most < pods and time.monotonic() < deadline:
        placed = len(observer.record.pods) - observer.unbound
        if placed > most:
            most, deadline = placed, time.monotonic() + _PATIENCE_SECONDS
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
        found = asyncio.run(place(given.keep or Path(folder), given.nodes, given.pods, given.variant))
    lab.report(found)
    return int(found["overcommitted"] > 0 and given.variant != "graded")


if __name__ == "__main__":
    sys.exit(main())
