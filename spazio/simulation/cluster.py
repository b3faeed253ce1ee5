"""The physics: pods share the processors of their node.

Every runnable thread of a node has the same share of its CPUs. A batch pod keeps its threads runnable until its work is
done; a serving pod has a random number of runnable threads (Poisson, with its demanded cores as the mean), and what is
not served is gone. Beyond one runnable thread a CPU, a share of the throughput is lost. A pod begins to run some time
after it was bound; the runtime keeps a CPU busy just before. A node whose pods need more memory than it has kills the
youngest, which begins again.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spazio.simulation.scenario import Scenario

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

TICKS = 10  # a second
ABSENT, WAITING, STARTING, RUNNING, DONE = range(5)


@dataclass(slots=True)
class Population:
    """All pods of a run; arrays are (pods,), in order of creation.

    Attributes:
        group: Index of the scenario's group.
        serial: Number within the group.
        created: When it is created.
        work: Core-seconds of a batch pod; of a serving one, infinity.
        threads: Threads of a batch pod, 0 for a serving one.
        demand: Cores that a serving pod demands, 0 for a batch one.
        memory: Bytes.
    """

    group: Whole
    serial: Whole
    created: Array
    work: Array
    threads: Array
    demand: Array
    memory: Array


def populate(scenario: Scenario, begin: float, random: np.random.Generator) -> Population:
    """Return the pods of a scenario whose clock begins at a virtual time."""
    columns: list[tuple[Array, ...]] = []
    for index, pods in enumerate(scenario.pods):
        serial = np.arange(pods.count, dtype=np.float64)
        batch = pods.kind == "batch"
        created = begin + pods.at + (serial / pods.per_second if pods.per_second else 0.0 * serial)
        drawn = pods.work * np.exp(random.normal(-(pods.spread**2) / 2, pods.spread, pods.count))
        work = drawn if batch else np.full(pods.count, np.inf)
        same = [index, pods.threads if batch else 0.0, 0.0 if batch else pods.cores, pods.memory]
        group, threads, demand, memory = (np.full(pods.count, value, dtype=np.float64) for value in same)
        columns.append((group, serial, created, work, threads, demand, memory))
    group, number, created, work, threads, demand, memory = (
        np.concatenate(each) for each in zip(*columns, strict=True)
    )
    order = np.argsort(created, kind="stable")
    amounts = (each[order] for each in (created, work, threads, demand, memory))
    return Population(group[order].astype(np.int64), number[order].astype(np.int64), *amounts)


class Shown(NamedTuple):
    """What nodes show of one tick; arrays are (nodes,).

    Attributes:
        used: Cores in use.
        runnable: Runnable threads.
        memory: Bytes in use.
    """

    used: Array
    runnable: Array
    memory: Array


class Cluster:
    """Nodes and pods at one moment.

    Attributes:
        cpus: (nodes,).
        memory: (nodes,) bytes.
        system_cpu: (nodes,) cores that the system takes without any pod.
        alive: (nodes,) whether a node runs.
        state: (pods,) one of the states above.
        node: (pods,) index of the node; -1: none.
        since: (pods,) from when on a pod has waited for a node, or did before it was bound; NaN: not created.
        bound, began, ended: (pods,) times; NaN: not yet.
        used_cores: (pods,) core-seconds since they were last taken by telemetry.
        waited: (pods,) seconds in which some thread waited for a CPU, since the same.
        kills: Out-of-memory kills.
    """

    def __init__(self, scenario: Scenario, population: Population, random: np.random.Generator) -> None:
        """Begin with empty nodes."""
        self._physics, self._random, self.population = scenario.physics, random, population

        def spread(field: str) -> Array:
            return np.concatenate([np.full(group.count, float(getattr(group, field))) for group in scenario.nodes])

        self.cpus, self.memory = spread("cpus"), spread("memory")
        self.system_cpu, self._system_memory = spread("system_cpu"), spread("system_memory")
        self.alive = np.ones(len(self.cpus), dtype=np.bool_)
        count = len(population.created)
        lives = np.array([group.seconds or np.inf for group in scenario.pods])
        self._life = np.where(population.threads > 0, np.inf, lives[population.group])
        self.state, self.node = np.zeros(count, dtype=np.int64), np.full(count, -1, dtype=np.int64)
        self.since, self.bound, self.began, self.ended = (np.full(count, np.nan) for _ in range(4))
        self._due, self._left = np.full(count, np.inf), population.work.copy()
        self._killed = np.zeros(count, dtype=np.int64)
        self.used_cores, self.waited = np.zeros(count), np.zeros(count)
        self.kills = 0

    @property
    def done(self) -> bool:
        """Whether all pods that end by themselves, of which there are some, have ended, and all others have a node."""
        ends = np.isfinite(self.population.work) | np.isfinite(self._life)
        return bool(ends.any() and (self.state[ends] == DONE).all() and (self.node[~ends] >= 0).all())

    def create(self, now: float) -> Whole:
        """Create the pods whose time has come, which then wait for a node; return them."""
        created = np.flatnonzero((self.state == ABSENT) & (self.population.created <= now))
        self.state[created], self.since[created] = WAITING, self.population.created[created]
        return created

    def bind(self, pod: int, node: int, now: float) -> None:
        """Bind a pod; it runs after its start latency."""
        self.state[pod], self.node[pod], self.bound[pod] = STARTING, node, now
        self._due[pod] = now + self._latency()

    def lose(self, nodes: int, now: float) -> Whole:
        """Let so many nodes die; return their pods, which wait again as if they had just been created."""
        dead = self._random.choice(np.flatnonzero(self.alive), nodes, replace=False)
        self.alive[dead] = False
        lost = np.flatnonzero(np.isin(self.node, dead) & np.isin(self.state, (STARTING, RUNNING)))
        self.state[lost], self.node[lost], self._due[lost], self.since[lost] = WAITING, -1, np.inf, now
        self.bound[lost] = self.began[lost] = np.nan
        self._left[lost] = self.population.work[lost]
        return lost

    def tick(self, now: float) -> tuple[Shown, Whole, Whole, Whole]:
        """Advance by one tick; return what nodes show, the pods that began, that ended, and that were killed."""
        step, nodes = 1.0 / TICKS, len(self.cpus)
        starting = np.flatnonzero(self.state == STARTING)
        began = starting[self._due[starting] <= now]
        self.state[began], self.began[began] = RUNNING, now
        running = np.flatnonzero(self.state == RUNNING)
        node, own = self.node[running], self.population
        threads = own.threads[running].copy()
        serving = np.flatnonzero(own.demand[running] > 0)
        threads[serving] = self._random.poisson(own.demand[running[serving]])
        late = starting[(self._due[starting] > now) & (self._due[starting] <= now + self._physics.spike_seconds)]
        spikes = np.bincount(self.node[late], minlength=nodes)
        runnable = np.bincount(node, weights=threads, minlength=nodes) + spikes + self.system_cpu * self.alive
        each = np.minimum(1.0, self.cpus / np.maximum(runnable, 1e-9))
        useful = each * (1.0 - self._physics.loss * (1.0 - each))
        taken = threads * each[node] * step
        self.used_cores[running] += taken
        # Each of its threads runs in that share of the time, whatever the others do.
        self.waited[running] += (1.0 - each[node] ** threads) * step
        self._left[running] -= threads * useful[node] * step
        over = (self._left[running] <= 0) | (now + step - self.began[running] >= self._life[running])
        ended = running[over]
        self.state[ended], self.ended[ended] = DONE, now + step
        held = self._system_memory * self.alive + np.bincount(node, weights=own.memory[running], minlength=nodes)
        killed = self._kill(running[~over], held, now)
        return Shown(np.minimum(runnable, self.cpus), runnable, np.minimum(held, self.memory)), began, ended, killed

    def _kill(self, running: Whole, held: Array, now: float) -> Whole:
        """Kill the youngest pods of nodes whose memory is overcommitted, and return them; they start again there.

        What they held is taken out of `held`.
        """
        killed: list[int] = []
        for node in np.flatnonzero(held > self.memory).tolist():
            own = running[self.node[running] == node]
            for pod in own[np.argsort(-self.began[own], kind="stable")].tolist():
                if held[node] <= self.memory[node]:
                    break
                held[node] -= self.population.memory[pod]
                pause = min(300.0, self._physics.restart_seconds * 2.0 ** self._killed[pod])
                self.state[pod], self._due[pod] = STARTING, now + pause + self._latency()
                self._left[pod] = self.population.work[pod]
                self._killed[pod] += 1
                killed.append(pod)
        self.kills += len(killed)
        return np.array(killed, dtype=np.int64)

    def _latency(self) -> float:
        mean = self._physics.start_seconds
        return min(self._physics.start_most, mean * (0.5 + self._random.exponential(0.5))) if mean else 0.0
