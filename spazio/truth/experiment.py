"""Runs the families on this machine while a separate pipeline measures it, and records both."""

import asyncio
import contextlib
import os
import platform
import signal
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bus import connection
from bus.client import Message
from bus.connection import Connection
from producers import memory
from producers.file import KernelFile
from schemas import codec, role
from schemas import settings as all_settings
from schemas.channel import TELEMETRY_KINDS
from schemas.messages.facts import PodFacts
from schemas.settings import Settings
from schemas.subject import Names
from spazio.service import addresses, child
from spazio.service.child import Unstartable
from spazio.truth import disturbance
from spazio.truth.disturbance import Outside
from spazio.truth.family import MOST_ADDED, Family, following
from spazio.truth.pod import Groups, Pod
from spazio.truth.recording import Recorder, Recording, Step, recorder
from spazio.truth.slowdown import Baseline, correct

FILLED = 0.9  # share of the available memory
_START_SECONDS = 40.0
_LOOK_SECONDS = 0.2
_SETTLED_SECONDS = 6.0  # after a change, before slowdown is measured
_GONE_SECONDS = 3.0  # between families, and before a pod that was beside others is measured alone
_ALONE_SECONDS = 10.0
_CORRECTIONS = 3  # tries to measure it undisturbed
_MOST_SLOWDOWN = 4.0


class PodEnded(RuntimeError):
    """A pod has ended by itself, as where memory runs out."""


@asynccontextmanager
async def pipeline(settings: Settings) -> AsyncIterator[tuple[Settings, int]]:
    """Run `spazio up` for the length of a block; yield settings that reach it, and its PID.

    Raises:
        Unstartable: It does not start.
    """
    own = child.environment(all_settings.environment(settings))
    command = (sys.executable, "-m", "spazio", "up", "--nats-port=0", "--http-port=0", "--extender-port=0")
    process = await asyncio.create_subprocess_exec(
        *command,
        "--data-dir",
        str(settings.data.dir),
        env=own,
        stdout=asyncio.subprocess.DEVNULL,
        preexec_fn=partial(child.end_with, os.getpid(), signal.SIGTERM),
    )
    try:
        ending = time.monotonic() + _START_SECONDS
        while "metrics" not in addresses.read(settings).get("services", {}):
            await asyncio.sleep(_LOOK_SECONDS)
            if time.monotonic() > ending or process.returncode is not None:
                raise Unstartable("`spazio up` did not start; run it by itself to see why")
        yield addresses.located(settings, role.LOCAL), process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


class Experiment:
    """One run of the experiment."""

    def __init__(
        self, settings: Settings, client: Connection, recorder: Recorder, folder: Path, pipeline_pid: int
    ) -> None:
        self._settings, self._client, self._recorder, self._folder = settings, client, recorder, folder
        self._names, self._node = Names(settings.prefix), settings.sample.node_name
        self._groups = Groups(settings.sample.cgroup)
        self._outside = Outside(settings.sample.proc, self._groups.roots, pipeline_pid)
        self._version = time.time_ns() // 1000
        self._pods: list[Pod] = []
        self._started = 0
        self._baseline = Baseline()

    async def run(self, families: Sequence[Family], step_seconds: float) -> AsyncGenerator[Step, None]:
        """Run the families one after another; yield each step when it has ended.

        However it ends, no pod and no control group is left.
        """
        self._groups.open(int(FILLED * available_bytes(self._settings)))
        for kind in (*TELEMETRY_KINDS, "availability"):
            await self._client.subscribe(self._names.node(kind, self._node), cb=self._record)
        await self._client.subscribe(self._names.model, cb=self._record)
        try:
            for family in families:
                async for step in self._family(family, step_seconds):
                    yield step
                await self._end(self._pods)
                await asyncio.sleep(_GONE_SECONDS)
        finally:
            for pod in self._pods:
                await pod.end()  # publishes nothing: the server may be gone
            self._groups.close()

    async def _record(self, message: Message) -> None:
        self._recorder.write(time.time_ns() // 1000, message.subject, message.data)

    async def _family(self, family: Family, step_seconds: float) -> AsyncIterator[Step]:
        for name, (program, count) in family.before.items():
            before = [await self._start(name, program, None) for _ in range(count)]
            await asyncio.sleep(step_seconds)
            self._require_running()
            await self._end(before)
        for program in family.beside:
            await self._start(f"{family.name}-beside", program, None)
        counted: list[Pod] = []
        steps: list[Step] = []
        counts, added = list(family.counts), 0
        for count in counts:  # grows
            while len(counted) < count:
                index = len(counted)
                counted.append(await self._start(family.workload(index), family.program(index), family.quota))
            step = await self._step(family, counted, step_seconds)
            steps.append(step)
            yield step
            if step.slowdown is not None and step.slowdown > _MOST_SLOWDOWN:
                break
            if step.fits is not None and step.fits - count < 1:
                break
            fast = step.slowdown is not None and step.slowdown <= self._settings.slowdown
            if fast and count == counts[-1] and added < MOST_ADDED:
                added += 1
                counts.append(following(counts))
        if family.again and family.endless and steps[0].pods == 1:
            await self._end(counted[:-1])
            await self._correct(family, steps, counted[-1])

    async def _correct(self, family: Family, steps: Sequence[Step], pod: Pod) -> None:
        """Take the drift of the machine's own speed from the slowdowns of a family's steps; a pod of it is left.

        Where something else uses the machine again and again, the slowdowns stay as they were measured.
        """
        await asyncio.sleep(_GONE_SECONDS)
        for _ in range(_CORRECTIONS):
            since_us = time.time_ns() // 1000
            _, disturbed = await self._wait(family, [pod], _ALONE_SECONDS)
            if disturbed is None:
                drift = self._baseline.slowdown([pod], since_us)
                if drift is not None:
                    correct(steps, drift, time.time_ns() // 1000)
                return

    async def _step(self, family: Family, counted: list[Pod], seconds: float) -> Step:
        """Measure the running pods, once more if something else used the machine."""
        count = len(counted)
        step = Step(family.name, family.limit, count, family.workload(count), time.time_ns() // 1000)
        ended, step.disturbed = await self._wait(family, counted, seconds)
        step.end_us = time.time_ns() // 1000
        if family.limit == "memory":
            left = available_bytes(self._settings) - self._settings.policy.eviction_bytes
            step.fits = count + max(0, left) / family.size
            return step
        since_us = step.begin_us + _SETTLED_SECONDS * 1e6
        if step.disturbed is not None:
            since_us = step.end_us
            ended, _ = await self._wait(family, counted, seconds)
        alone = count == 1 and not family.beside
        step.slowdown = self._baseline.slowdown([*counted, *ended], since_us, alone=alone)
        return step

    async def _wait(self, family: Family, counted: list[Pod], seconds: float) -> tuple[list[Pod], float | None]:
        """Wait, replacing pods if the family does so; return replaced pods, and the CPUs that disturbed meanwhile."""
        replaced: list[Pod] = []
        began, before = time.monotonic(), self._outside.seconds()
        ending = began + seconds
        while family.replaced_seconds and time.monotonic() < ending:
            await asyncio.sleep(family.replaced_seconds)
            oldest = counted.pop(0)
            await self._end([oldest])
            replaced.append(oldest)
            counted.append(await self._start(family.workload(0), family.program(0), family.quota))
        await asyncio.sleep(max(0.0, ending - time.monotonic()))
        self._require_running()
        outside = (self._outside.seconds() - before) / (time.monotonic() - began)
        return replaced, round(outside, 3) if outside > disturbance.SHARE * (os.cpu_count() or 1) else None

    def _require_running(self) -> None:
        """See that all pods run, since the rest of them would be measured as if they did.

        Raises:
            PodEnded: One does not.
        """
        for pod in self._pods:
            if pod.status is not None:
                raise PodEnded(
                    f"a pod of {pod.workload} ended with status {pod.status}"
                    + ("; memory ran out: free some, and measure again" if pod.status == -signal.SIGKILL else "")
                )

    async def _start(self, name: str, program: Sequence[str], quota: float | None) -> Pod:
        pod = Pod(name, program, quota)
        await self._publish(pod, "Pending")
        self._started += 1
        self._pods.append(pod)
        await pod.start(self._groups, seed=self._started, folder=self._folder)
        await self._publish(pod, "Running")
        return pod

    async def _end(self, pods: Sequence[Pod]) -> None:
        for pod in list(pods):
            await pod.end()
            self._pods.remove(pod)
            await self._publish(pod, "Succeeded", deleted=True)

    async def _publish(self, pod: Pod, phase: str, *, deleted: bool = False) -> None:
        """Publish the facts of a pod as the cluster watch would."""
        self._version += 1
        now = time.time_ns() // 1000
        facts = PodFacts.model_validate(
            {
                "node": self._node,
                "pod": pod.uid,
                "namespace": "truth",
                "name": pod.name,
                "version": self._version,
                "at_us": now,
                "deleted": deleted,
                "phase": phase,
                "created_us": pod.created_us,
                "requests": {},
                "limits": {},
                "labels": {},
                "annotations": {},
                "workload": pod.workload,
            }
        )
        subject = self._names.node("podfacts", self._node)
        await self._client.jetstream().publish(subject, codec.encode(facts))


def available_bytes(settings: Settings) -> int:
    """Return the available memory in bytes."""
    _, available, _ = memory.parse(KernelFile(settings.sample.proc / "meminfo").read())
    return available or 0


class Machine(NamedTuple):
    """The properties of a machine."""

    node: str
    cpus: int
    memory_bytes: int
    kernel: str


def machine(settings: Settings) -> Machine:
    """Return the properties of this machine."""
    total, _, _ = memory.parse(KernelFile(settings.sample.proc / "meminfo").read())
    return Machine(settings.sample.node_name, os.cpu_count() or 1, total, platform.release())


async def record(
    settings: Settings, families: Sequence[Family], folder: Path, step_seconds: float
) -> AsyncGenerator[Recording, None]:
    """Run everything and record it; yield the recording after every step."""
    recording = Recording(folder, machine(settings)._asdict())
    with recorder(recording) as telemetry:
        async with (
            pipeline(settings) as (located, pid),
            connection.connect(located, f"{settings.prefix}-truth") as client,
            contextlib.aclosing(
                Experiment(located, client, telemetry, folder, pid).run(families, step_seconds)
            ) as steps,
        ):
            await asyncio.sleep(_GONE_SECONDS)
            async for step in steps:
                if not recording.steps:
                    telemetry.keep()
                recording.steps.append(step)
                recording.save()
                yield recording
            recording.save()  # slowdowns of the last family are corrected when it ends
