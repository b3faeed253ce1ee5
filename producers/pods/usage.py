"""What every pod of the node used, once a second, and how much of the node's CPU pressure is owed to CPU quotas.

What is in no pod is the root cgroup's CPU time less what is told of pods, so that a block always adds up to the node.
A pod that has come since the reading before began it at nothing: all that it used belongs to this block. That is known
only of one that nobody has seen until then, so the cgroups in which nothing runs are read too. A pod that went between
listing and reading is left out and counted; what it used since its last reading shows as the system's.
"""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from producers import clock as grid
from producers.containers.sources.source import Identity
from producers.containers.sources.tree import VANISHED
from producers.pods import node_usage
from producers.pods.census import Account, Census, Pod
from producers.pods.meter import Layout
from producers.pods.node_usage import Files, Reading
from producers.pods.pod_usage import Gauge, Usage
from producers.source import FAILURES
from producers.throttle import excess
from schemas.messages.base import VERSION
from schemas.messages.telemetry import MAXIMUM_PODS, MAXIMUM_US

log = logging.getLogger(__name__)

_NAME = "usage"
_FRESH = 1_500_000_000
_CARRY = 0.5  # weight of the looks of seconds before: twenty alone deviate by up to 0.11
_RESERVE = 256  # descriptors left to everything else
_AGE_SECONDS = 0.1  # of the list of pods: one that is missed here seems to have used all in the block after this
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class Reader:
    """Reads the usage of all pods.

    Args:
        census: Who knows the pods.
        root: Where cgroups are mounted.
        proc: Where `/proc` is mounted.
        node: The node's name.
        boot: Identifier of this boot of its kernel.
        identify: Tells who a pod (by UID) or a container (by id) is.
        descriptors: How many files this process may keep open.
        clock: Clocks.
    """

    def __init__(
        self,
        census: Census,
        root: Path,
        proc: Path,
        *,
        node: str,
        boot: str,
        identify: Callable[[str], Identity | None],
        descriptors: int,
        clock: grid.Clock | None = None,
    ) -> None:
        self._census, self._root, self._proc, self._identify = census, root, proc, identify
        self._clock = clock or grid.System()
        self._descriptors = descriptors - _RESERVE
        self._identity = {"v": VERSION, "node": node, "boot": boot}
        self._tree: Path | None = None
        self._gauges: dict[tuple[str, ...], Gauge] = {}
        self._known: set[str] = set()  # pods that were there at the reading before
        self._before: Reading | None = None
        self._excess: list[float] = []
        self._waiting: float | None = None
        self._quota_share: float | None = None
        self._vanished, self._failures = VANISHED.labels(_NAME), FAILURES.labels(_NAME)
        self._said: set[str] = set()
        self.limited = False  # whether a pod with a CPU quota has run in the last second

    def quota_share(self) -> float | None:
        """Return the share of CPU pressure owed to quotas in the second before the last reading; None: too long ago."""
        before = self._before
        return self._quota_share if before is not None and self._clock.monotonic() - before.at < _FRESH else None

    def look(self) -> None:
        """Look how many threads want to run, at a moment that should be random.

        Raises:
            OSError: The file is not there.
            ValueError: It is not what it should be; also LookupError.
        """
        if self._before is not None:
            self._excess.append(excess(self._files.runnable(), self._before.stat.cpus))

    def read(self) -> tuple[int, bytes] | None:
        """Read everything; return `seq` and payload of a block, or None where there is nothing to tell (yet).

        Raises:
            OSError: What tells of the node is not there.
            ValueError: It is not what it should be; also LookupError.
        """
        account = self._census.take(_AGE_SECONDS)
        if account is None:
            return None
        if account.tree != self._tree:
            self._tree, self._layout = account.tree, Layout(self._root)
            self._files = Files(self._layout, self._proc)
            self._gauges, self._known, self._before = {}, set(), None
        boottime, at_us = self._clock.boottime(), self._clock.realtime() // 1000
        now = self._files.read(self._clock.monotonic())
        used = self._measure(account)
        before, self._before = self._before, now
        if before is None or now.at <= before.at:
            return None
        usages = [usage for _, usage in used]
        self._quota_share = node_usage.quota_share(before, now, usages, self._looked())
        self.limited = any(usage.held is not None and usage.spent for usage in usages)
        seq = boottime // grid.SECOND
        block = {
            **self._identity,
            "seq": seq,
            "at_us": at_us,
            "span_us": min(max(1, (now.at - before.at) // 1000), MAXIMUM_US),
            **node_usage.rest(before, now, usages),
            **self._columns(used),
        }
        return seq, _encode(block).encode()

    def _measure(self, account: Account) -> list[tuple[Pod, Usage]]:
        """Read the pods one by one, each at its own time; return what those used that run."""
        if len(account.pods) > MAXIMUM_PODS:
            self._say("usage.truncated", pods=len(account.pods), told=MAXIMUM_PODS)
        before = None if self._before is None else self._before.at
        known, self._known = self._known, {pod.key for pod in (*account.pods, *account.idle)}
        running = account.pods[:MAXIMUM_PODS]
        gauges, self._gauges = self._gauges, {}
        open_files = sum(gauge.files for gauge in gauges.values())
        used: list[tuple[Pod, Usage]] = []
        for number, pod in enumerate((*running, *account.idle[:MAXIMUM_PODS])):
            gauge = gauges.get(pod.paths)
            if gauge is None:
                keep = open_files < self._descriptors
                since = None if pod.key in known else before
                gauge = Gauge(self._layout, pod.paths, keep=keep, since=since)
            self._gauges[pod.paths] = gauge
            try:
                usage = gauge.read(pod, self._clock.monotonic())
            except (OSError, ValueError, LookupError) as error:
                self._failures.inc()
                self._say("usage.unreadable", pod=pod.key, reason=repr(error))
                continue
            if pod.paths not in gauges:
                open_files += gauge.files
            if number >= len(running):
                continue
            if usage is None:
                self._vanished.inc()
            else:
                used.append((pod, usage))
        return used

    def _looked(self) -> float | None:
        """Return the mean excess as looked up until now, and begin to look anew."""
        looks, self._excess = self._excess, []
        if not looks:
            self._waiting = None
        else:
            mean = sum(looks) / len(looks)
            self._waiting = mean if self._waiting is None else _CARRY * self._waiting + (1 - _CARRY) * mean
        return self._waiting

    def _columns(self, used: list[tuple[Pod, Usage]]) -> dict[str, list[Any]]:
        known = [self._identify(pod.key) for pod, _ in used]
        names = [None if one is None else one.name if one.pod else one.container_name for one in known]
        usages = [usage for _, usage in used]
        kinds = [one and one.kind for one in known]
        columns: dict[str, list[Any]] = {
            "pods": [pod.key for pod, _ in used],
            "namespaces": [one and one.namespace for one in known],
            "names": names,
            "workloads": [one and one.workload for one in known],
            "containers": [pod.running for pod, _ in used],
            "cpu_cores": [_rounded(usage.cpu_cores, 6) for usage in usages],
            "memory_bytes": [usage.memory_bytes for usage in usages],
            "cpu_pressure": [_rounded(usage.cpu_pressure, 4) for usage in usages],
            "memory_pressure": [_rounded(usage.memory_pressure, 4) for usage in usages],
            "io_pressure": [_rounded(usage.io_pressure, 4) for usage in usages],
            "throttled": [_rounded(usage.throttled, 4) for usage in usages],
            "ages": [usage.age for usage in usages],
        }
        return columns | {"kinds": kinds} if any(kinds) else columns

    def _say(self, event: str, **fields: object) -> None:
        if event not in self._said:
            self._said.add(event)
            log.warning(event, extra=fields)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
