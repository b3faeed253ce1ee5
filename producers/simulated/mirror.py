"""What the nodes of a cluster would measure that has no kubelets: usage made up for pods that only the API knows.

The cluster watch says which nodes there are and which pods run on them; each pod takes what `guest` says, a node its
idle baseline and what its pods take, and `sharing` and `sample` say how that shows. Everything follows from the facts,
the times at which the watch learned of them, and the seed; there is no clock. A pod that needs more memory than there
is does not die of it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from producers.simulated import guest, machine, mirror_text, noise, sample, sharing
from producers.simulated.guest import Guest
from producers.simulated.machine import SECOND_US, Machine
from producers.simulated.mirror_text import Published
from producers.simulated.sharing import Shared
from schemas.messages.facts import UNBOUND, NodeFacts, PodFacts

Array = NDArray[np.float64]

_OFFSETS_US = (np.arange(sample.SAMPLES) * SECOND_US) // sample.SAMPLES
_POD_NOISE = 0.05
_MOMENT = np.uint64(0xA5A5A5A5A5A5A5A5)  # tells a node's moments apart from its noise
_LATE_US = 10 * SECOND_US  # a second that is later is left out, as by an agent that was stopped


@dataclass(slots=True)
class Mirror:
    """A cluster as facts have it.

    Attributes:
        seed: Of the noise.
        start_us: When the simulation began; nodes that are simulated again have rebooted.
        doubt: Receives what a pod's annotations say of its usage and cannot be read.
        machines: Nodes by name.
        guests: By node and UID the pods that run, or ended within a second that is not published yet.
    """

    seed: int
    start_us: int
    doubt: Callable[[str], None]
    machines: dict[str, Machine] = field(default_factory=dict)
    guests: dict[str, dict[str, Guest]] = field(default_factory=dict)
    _versions: dict[str, int] = field(default_factory=dict)

    def hear_node(self, facts: NodeFacts) -> None:
        """Take what is known of a node; older facts than those known change nothing."""
        if self._old(facts.uid, facts.version, deleted=facts.deleted):
            return
        present = self.machines.get(facts.node)
        if facts.deleted:
            if present is not None and present.uid == facts.uid:
                del self.machines[facts.node]
                guests = self.guests.get(facts.node, {})
                self.guests[facts.node] = {uid: each for uid, each in guests.items() if each.end_us == guest.NEVER}
            return
        cores, memory = round(facts.capacity.get("cpu", 0)), int(facts.capacity.get("memory", 0))
        if present is not None and present.uid == facts.uid:
            present.cores, present.memory = cores or present.cores, memory or present.memory
        elif cores and memory:  # else its kubelet has not reported yet how large it is
            self.machines[facts.node] = machine.of(facts, cores, memory, seed=self.seed, start_us=self.start_us)

    def hear_pod(self, facts: PodFacts) -> Iterator[Published]:
        """Take what is known of a pod; yields the events of its container, if it began or ended."""
        if facts.node == UNBOUND or self._old(facts.pod, facts.version, deleted=facts.deleted):
            return
        guests, host = self.guests.setdefault(facts.node, {}), self.machines.get(facts.node)
        present = guests.get(facts.pod)
        runs = facts.phase in ("Running", "Unknown") and not facts.deleted
        if runs and present is None:
            guests[facts.pod] = guest.of(facts, self.seed, self.doubt)
            if host is not None and facts.at_us >= host.first_us:
                yield from mirror_text.events(host, facts, 0)
        elif present is not None and not runs and present.end_us == guest.NEVER:
            present.end_us = max(facts.at_us, present.start_us)
            if host is None:
                del guests[facts.pod]
            elif facts.at_us >= host.first_us:
                yield from mirror_text.events(host, facts, 1)

    def tell(self, now_us: int) -> Iterator[Published]:
        """Yield the unpublished blocks of seconds that have ended by a time; of each node one at most."""
        due = [each for each in self.machines.values() if each.next_us + SECOND_US <= now_us]
        for each in due:
            each.next_us += max(0, now_us - each.next_us - _LATE_US) // SECOND_US * SECOND_US
        if due:
            yield from self._second(due)

    def _second(self, due: list[Machine]) -> Iterator[Published]:
        groups = [list(self.guests.get(each.name, {}).values()) for each in due]
        guests = [pod for group in groups for pod in group]
        host = np.repeat(np.arange(len(due)), [len(group) for group in groups])
        begins = np.array([each.next_us for each in due], dtype=np.int64)
        number, keys = begins // SECOND_US, np.array([each.key for each in due], dtype=np.uint64)
        at = begins[:, None] + _OFFSETS_US
        start = np.array([pod.start_us for pod in guests], dtype=np.int64)
        end = np.array([pod.end_us for pod in guests], dtype=np.int64)
        there = (start[:, None] <= at[host]) & (at[host] < end[:, None])
        own = noise.normal(np.array([pod.key for pod in guests], dtype=np.uint64), number[host], 1)[:, 0]
        wanted = np.array([pod.cores for pod in guests]) * np.maximum(0.0, 1 + _POD_NOISE * own)
        threads = np.array([pod.threads for pod in guests], dtype=np.float64)
        memory = np.array([pod.memory for pod in guests])
        random = noise.normal(keys, number, 2 * sample.SAMPLES)
        demand = _per_node([each.idle_cores for each in due], host, np.where(there, wanted[:, None], 0.0))
        demand += random[:, : sample.SAMPLES] * (0.005 + 0.02 * np.sqrt(demand))
        np.maximum(demand, 0.001, out=demand)
        soaking = _per_node([0.0] * len(due), host, np.where(there, threads[:, None], 0.0))
        moment = noise.uniform(keys ^ _MOMENT, number, sample.SAMPLES)
        shared = sharing.share(np.array([each.cores for each in due]), demand, soaking, moment)
        held = _per_node([each.idle_memory for each in due], host, np.where(there, memory[:, None], 0.0))
        pods = _per_node([0.0] * len(due), host, there.astype(np.float64))
        samples = _samples(due, random, shared, held, pods)
        used, waited = _had(shared, host, there, wanted, threads)
        last = (start < begins[host] + SECOND_US) & (begins[host] + SECOND_US < end)
        usage = mirror_text.Usage(
            host[last], used[last], memory[last], waited[last], (begins[host] + SECOND_US - start)[last] // SECOND_US
        )
        shown = [pod.facts for pod, visible in zip(guests, last.tolist(), strict=True) if visible]
        yield from mirror_text.blocks(due, samples, shown, usage)
        for each, group in zip(due, groups, strict=True):
            each.next_us += SECOND_US
            for pod in group:
                if pod.end_us <= each.next_us:
                    del self.guests[each.name][pod.facts.pod]

    def _old(self, uid: str, version: int, *, deleted: bool) -> bool:
        """Tell whether as new facts are known; remembers these if not, and forgets what is deleted."""
        if version <= self._versions.get(uid, -1):
            return True
        if deleted:
            self._versions.pop(uid, None)
        else:
            self._versions[uid] = version
        return False


def _cores(due: list[Machine]) -> Array:
    return np.array([each.cores for each in due], dtype=np.float64)


def _per_node(idle: list[float], host: NDArray[np.intp], amounts: Array) -> Array:
    """Return (nodes, samples) sums over pods; each node adds up in the order of its pods."""
    total = np.repeat(np.array(idle, dtype=np.float64)[:, None], sample.SAMPLES, axis=1)
    np.add.at(total, host, amounts)
    return total


def _had(
    shared: Shared, host: NDArray[np.intp], there: NDArray[np.bool_], wanted: Array, threads: Array
) -> tuple[Array, Array]:
    """Return the cores that each pod had in the second (pods,), and the share of it that some thread of it waited."""
    served = wanted[:, None] * shared.served[host]
    each = shared.soaked[host]
    cores = np.where(there, served + threads[:, None] * each, 0.0).mean(axis=1)
    # By Little's law so many of its threads wait at one moment; several may do so at once.
    threads_waiting = served * (shared.slowdown[host] - 1) + threads[:, None] * (1 - each)
    return cores, np.where(there, np.minimum(threads_waiting, 1.0), 0.0).mean(axis=1)


def _samples(due: list[Machine], random: Array, shared: Shared, held: Array, pods: Array) -> Array:
    """Return (nodes, samples, metrics)."""
    first, second = random[:, : sample.SAMPLES], random[:, sample.SAMPLES :]
    memory = held / np.array([each.memory for each in due], dtype=np.float64)[:, None]
    load1 = np.array([each.load1 for each in due])
    load1 += (shared.runnable.mean(axis=1) - load1) / 60
    for each, load in zip(due, load1.tolist(), strict=True):
        each.load1 = load
    return sample.shown(
        shared.used / _cores(due)[:, None],
        np.clip(memory + 5e-4 * second, 0.0, 0.99),
        np.clip((0.005 + 0.001 * pods) * (1 + 0.1 * second), 0.0, 1.0),
        (2e3 + 1e5 * pods) * (1 + 0.05 * first),
        1 + shared.runnable,
        load1,
        pods,
        shared.pressure,
    )
