"""Usage of every pod of the node, once a second, and the share of the node's CPU pressure that CPU quotas cause.

Usage outside pods is the root cgroup's CPU time less the usage of the pods, so that a block always adds up to the node.
The counters of a new pod started at 0 since the previous reading: all of its usage belongs to this block. To know that
a pod is new, the reader also reads cgroups without processes. A pod that disappears between listing and reading is
left out and counted; its usage since its last reading appears as the system's.
"""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from producers import clock as grid
from producers.containers.sources.source import Identity
from producers.containers.sources.tree import VANISHED
from producers.pods import cgroup, node_usage
from producers.pods.blocked import Blocked
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
_CARRY = 0.5  # weight of earlier seconds: a mean of twenty samples deviates by up to 0.11
_RESERVE = 256  # descriptors for all other uses
_AGE_SECONDS = 0.1  # of the list of pods: all usage of a pod that is missing here appears in the next block
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class Reader:
    """Reads the usage of all pods.

    Args:
        census: Census of the node's pods.
        root: Mount of the cgroup trees.
        proc: Mount of `/proc`.
        node: The node's name.
        boot: Identifier of this boot of its kernel.
        identify: Returns the identity of a pod (by UID) or a container (by id).
        descriptors: Number of files that this process may keep open.
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
        self._gauges: dict[str, Gauge] = {}
        self._previous_pods: set[str] = set()  # pods of the previous reading
        self._before: Reading | None = None
        self._excess: list[float] = []
        self._waiting: float | None = None
        self._quota_share: float | None = None
        self._vanished, self._failures = VANISHED.labels(_NAME), FAILURES.labels(_NAME)
        self._logged: set[str] = set()
        self._limited = False  # whether a pod with a CPU quota ran in the last second

    def quota_share(self) -> float | None:
        """Return the share of CPU pressure that quotas caused in the second before the last reading; None: too old."""
        before = self._before
        return self._quota_share if before is not None and self._clock.monotonic() - before.at < _FRESH else None

    @property
    def is_sampling(self) -> bool:
        """Whether something is to be sampled until the next reading."""
        return self._before is not None and (self._limited or self._blocked.active)

    def sample(self) -> None:
        """Sample the number of runnable threads, and which threads wait for I/O; call it at random times.

        Raises:
            OSError: The file is missing.
            ValueError: It is malformed; also LookupError.
        """
        if self._before is None:
            return
        self._excess.append(excess(self._files.runnable(), self._before.stat.cpus))
        if self._blocked.active:
            self._blocked.sample()

    def read(self, second: int) -> tuple[int, bytes] | None:
        """Read everything; return `seq` and payload of a block, or None if there is no block (yet).

        Args:
            second: Second since boot in which the reading was due: the block's `seq`.

        Raises:
            OSError: A file of the node is missing.
            ValueError: It is malformed; also LookupError.
        """
        account = self._census.take(_AGE_SECONDS)
        if account is None:
            return None
        if account.tree != self._tree:
            self._blocked = Blocked(cgroup.trees(self._root)[-1], self._proc)
            self._tree, self._layout = account.tree, Layout(self._root)
            self._files = Files(self._layout, self._proc)
            self._gauges, self._previous_pods, self._before = {}, set(), None
        at_us = self._clock.realtime() // 1000
        now = self._files.read(self._clock.monotonic())
        used = self._with_waiting(self._measure(account), now.at)
        before, self._before = self._before, now
        if before is None or now.at <= before.at:
            return None
        usages = [usage for _, usage in used]
        self._quota_share = node_usage.quota_share(before, now, usages, self._mean_excess())
        self._limited = any(usage.held is not None and usage.spent for usage in usages)
        block = {
            **self._identity,
            "seq": second,
            "at_us": at_us,
            "span_us": min(max(1, (now.at - before.at) // 1000), MAXIMUM_US),
            **node_usage.rest(before, now, usages, evicts=any(cgroup.is_uid(pod.key) for pod, _ in used)),
            **self._columns(used),
        }
        return second, _encode(block).encode()

    def _measure(self, account: Account) -> list[tuple[Pod, Usage]]:
        """Read the pods one by one, each at its own time; return the usage of running ones."""
        if len(account.pods) > MAXIMUM_PODS:
            self._log_once("usage.truncated", pods=len(account.pods), reported=MAXIMUM_PODS)
        before = None if self._before is None else self._before.at
        previous, self._previous_pods = self._previous_pods, {pod.key for pod in (*account.pods, *account.idle)}
        running = account.pods[:MAXIMUM_PODS]
        gauges, self._gauges = self._gauges, {}
        open_files = sum(gauge.files for gauge in gauges.values())
        used: list[tuple[Pod, Usage]] = []
        for number, pod in enumerate((*running, *account.idle[:MAXIMUM_PODS])):
            gauge = gauges.get(pod.key)
            if gauge is None:
                keep = open_files < self._descriptors
                since = None if pod.key in previous else before
                gauge = Gauge(self._layout, keep=keep, since=since)
            self._gauges[pod.key] = gauge
            try:
                usage = gauge.read(pod, self._clock.monotonic())
            except (OSError, ValueError, LookupError) as error:
                self._failures.inc()
                self._log_once("usage.unreadable", pod=pod.key, reason=repr(error))
                continue
            if pod.key not in gauges:
                open_files += gauge.files
            if number >= len(running):
                continue
            if usage is None:
                self._vanished.inc()
            else:
                used.append((pod, usage))
        return used

    def _with_waiting(self, used: list[tuple[Pod, Usage]], now: int) -> list[tuple[Pod, Usage]]:
        """Return usages with the share of time that pods waited for I/O, where the kernel does not account it."""
        accounted = any(usage.io_pressure is not None for _, usage in used)
        silent = {pod.key: pod for pod, _ in used if pod.legacy or not accounted}
        if accounted and not silent:
            self._blocked.stop()
            return used
        shares = self._blocked.shares(list(silent.values()), now)
        return [
            (pod, usage._replace(io_pressure=shares.get(pod.key)) if pod.key in silent else usage)
            for pod, usage in used
        ]

    def _mean_excess(self) -> float | None:
        """Return the smoothed mean of the excess samples, and start a new list."""
        samples, self._excess = self._excess, []
        if not samples:
            self._waiting = None
        else:
            mean = sum(samples) / len(samples)
            self._waiting = mean if self._waiting is None else _CARRY * self._waiting + (1 - _CARRY) * mean
        return self._waiting

    def _columns(self, used: list[tuple[Pod, Usage]]) -> dict[str, list[Any]]:
        identities = [self._identify(pod.key) for pod, _ in used]
        names = [None if each is None else each.name if each.pod else each.container_name for each in identities]
        usages = [usage for _, usage in used]
        kinds = [identity and identity.kind for identity in identities]
        columns: dict[str, list[Any]] = {
            "pods": [pod.key for pod, _ in used],
            "namespaces": [each and each.namespace for each in identities],
            "names": names,
            "workloads": [each and each.workload for each in identities],
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

    def _log_once(self, event: str, **fields: object) -> None:
        if event not in self._logged:
            self._logged.add(event)
            log.warning(event, extra=fields)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
