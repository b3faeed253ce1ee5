"""One run: a scenario, a scheduler and a seed, from the first pod to the last, in virtual time.

kube-scheduler's part: pods wait in order of creation. A refused pod goes to the end of the queue, in which pods of
equal priority are in the order in which they came or were last tried, and waits until a pod has ended or, under spazio,
a second of telemetry has come. Then it is tried again when it has backed off, for one second, doubling to ten; sooner
where no other pod is ready, as since kube-scheduler 1.33 (KEP-5142). It sees a pod's end at once, and seeks a node for
at most so many pods a second.

Source: kube-scheduler 1.36, `backend/queue` and `framework/plugins/queuesort`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from processors.estimation import slowdown
from spazio.simulation import schedulers
from spazio.simulation.cluster import RUNNING, TICKS, WAITING, Cluster, Population, Shown, Whole, populate
from spazio.simulation.scenario import PRODUCT, Scenario
from spazio.simulation.schedulers import Make
from spazio.simulation.schedulers.protocol import Scheduler
from spazio.simulation.telemetry import Change, Event, Voice

_BACKOFF_SECONDS, _LONGEST_BACKOFF = 1.0, 10.0
_TOLERANCE = 0.01
SETTLED_SECONDS = 20  # for which telemetry runs before the first pod is created


@dataclass(slots=True)
class Run:
    """What a run leaves behind; arrays are (pods,) unless stated.

    Attributes:
        population: The pods.
        since: Virtual time of creation, or at which a pod lost its node; NaN: not created.
        bound, began, ended: Virtual times after that; NaN: never.
        over_seconds: Node-seconds in which the mean slowdown was beyond the policy, and by more than the system itself
            causes, or services demanded so much that theirs would be.
        busy_seconds: Node-seconds in which any pod ran.
        utilization: (seconds,) CPU in use over all CPUs, from the first possible creation on.
        slowdowns: How often serving pods had each slowdown, counted for each pod and tenth of a second; slowdowns are
            few, since a whole number of threads is runnable beside what the system takes.
        kills: Out-of-memory kills.
        refusals: Attempts to place a pod that found no node.
        seconds: Virtual time from the first possible creation to the end.
    """

    population: Population
    since: NDArray[np.float64]
    bound: NDArray[np.float64]
    began: NDArray[np.float64]
    ended: NDArray[np.float64]
    over_seconds: int = 0
    busy_seconds: int = 0
    utilization: list[float] = field(default_factory=list)
    slowdowns: Counter[float] = field(default_factory=Counter)
    kills: int = 0
    refusals: int = 0
    seconds: float = 0.0


async def run(scenario: Scenario, scheduler: str, seed: int, make: Make = schedulers.MAKE) -> Run:
    """Run one scheduler with one seed; the same seed has the same pods and the same physics under each scheduler."""
    return await _Engine(scenario, scheduler, seed, make).run()


class _Engine:
    def __init__(self, scenario: Scenario, name: str, seed: int, make: Make) -> None:
        self._scenario, self._is_spazio = scenario, name in PRODUCT
        population = populate(scenario, SETTLED_SECONDS, np.random.default_rng([seed, 1]))
        self._cluster = Cluster(scenario, population, np.random.default_rng([seed, 2]))
        self._voice = Voice(scenario, self._cluster, requests=scenario.keep_requests or not self._is_spazio)
        self._scheduler: Scheduler = make[name](scenario, self._voice, seed)
        self._losses = sorted(scenario.losses, key=lambda loss: loss.at, reverse=True)
        self._names = list(self._voice.nodes)
        self._alive = np.arange(len(self._names))
        count = len(population.created)
        self._queue = np.zeros(0, dtype=np.int64)
        self._kinds = _kinds(scenario)[population.group]
        self._retry_at, self._tries = np.zeros(count), np.zeros(count, dtype=np.int64)
        self._woken = np.zeros(count, dtype=np.bool_)  # an event has come since the pod was refused
        self._allowance, self._event = 0.0, False
        self._serving = np.flatnonzero(population.demand > 0)
        cluster = self._cluster
        self._allowed = slowdown.cores(scenario.slowdown, cluster.cpus)
        self._longest = scenario.slowdown + cluster.system_cpu / cluster.cpus
        self._run = Run(population, cluster.since, cluster.bound, cluster.began, cluster.ended)

    async def run(self) -> Run:
        number, latest = 0, SETTLED_SECONDS + self._scenario.seconds
        while number < latest and not self._cluster.done:
            await self._second(number)
            number += 1
        self._run.kills, self._run.seconds = self._cluster.kills, number - SETTLED_SECONDS
        return self._run

    async def _second(self, number: int) -> None:
        ticks: list[Shown] = []
        changes: list[Change] = []
        for tick in range(TICKS):
            now = number + tick / TICKS
            self._queue = np.concatenate([self._queue, self._cluster.create(now)])
            self._lose(now)
            await self._schedule(now)
            shown, began, ended, killed = self._cluster.tick(now)
            ticks.append(shown)
            events: tuple[tuple[Whole, Event], ...] = ((began, "started"), (ended, "exited"))
            for pods, event in events:
                for pod in pods.tolist():
                    changes.append((pod, event, now))
                    self._scheduler.hear(self._voice.facts(pod, now, deleted=event == "exited"))
            changes += [(pod, "exited", now) for pod in killed.tolist()]  # its container; the pod stays
            self._event |= bool(len(ended))
        if number >= SETTLED_SECONDS:
            self._measure(ticks)
        messages = self._voice.second(number, ticks, changes) if self._is_spazio else ()  # only spazio reads messages
        self._scheduler.observe(number + 1.0, ticks, messages)
        self._event |= self._is_spazio

    def _lose(self, now: float) -> None:
        while self._losses and self._losses[-1].at + SETTLED_SECONDS <= now:
            before = set(self._alive.tolist())
            lost = self._cluster.lose(self._losses.pop().nodes, now)
            self._alive = np.flatnonzero(self._cluster.alive)
            self._names = [self._voice.nodes[index] for index in self._alive.tolist()]
            for pod in lost.tolist():
                self._scheduler.hear(self._voice.facts(pod, now))
            for node in before - set(self._alive.tolist()):
                self._scheduler.leave(self._voice.nodes[node])
            self._tries[lost] = 0
            self._queue = np.concatenate([self._queue, lost])
            self._event = True

    async def _schedule(self, now: float) -> None:
        """Try pods, as many as the scheduler manages in a tick; those that are refused go to the end of the queue.

        Within a tick room only gets less, so a pod like another that was refused is refused without being asked about.
        """
        most = self._scenario.binds_per_second / TICKS
        self._allowance = min(self._allowance + most, max(1.0, most))
        if self._event:
            self._woken[self._queue], self._event = True, False
        ready, tried = self._ready(now), 0
        without_room: set[int] = set()
        for pod, kind in zip(ready.tolist(), self._kinds[ready].tolist(), strict=True):
            if kind not in without_room:
                if self._allowance < 1.0:
                    break
                self._allowance -= 1.0
                if not await self._placed(pod, now):
                    without_room.add(kind)
            tried += 1
        if tried:
            refused = ready[:tried][self._cluster.state[ready[:tried]] == WAITING]
            self._refuse(refused, now)
            self._queue = np.concatenate([self._queue[~np.isin(self._queue, ready[:tried])], refused])

    def _ready(self, now: float) -> Whole:
        """Return the pods to try in their order: those that do not back off, then the others, the nearest end first."""
        queue = self._queue[(self._tries[self._queue] == 0) | self._woken[self._queue]]
        backs_off = (self._tries[queue] > 0) & (self._retry_at[queue] > now)
        others = queue[backs_off]
        return np.concatenate([queue[~backs_off], others[np.argsort(self._retry_at[others], kind="stable")]])

    async def _placed(self, pod: int, now: float) -> bool:
        chosen = await self._scheduler.place(pod, self._names, now)
        if chosen is None:
            return False
        self._cluster.bind(pod, int(self._alive[chosen]), now)
        self._scheduler.hear(self._voice.facts(pod, now))
        return True

    def _refuse(self, pods: Whole, now: float) -> None:
        backoff = _BACKOFF_SECONDS * 2.0 ** np.minimum(self._tries[pods], 10)
        self._retry_at[pods] = now + np.minimum(_LONGEST_BACKOFF, backoff)
        self._tries[pods] += 1
        self._woken[pods] = False
        self._run.refusals += len(pods)

    def _measure(self, ticks: Sequence[Shown]) -> None:
        cluster, run = self._cluster, self._run
        running = cluster.state == RUNNING
        busy = np.bincount(cluster.node[running], minlength=len(cluster.cpus)) > 0
        slowed = np.mean([np.maximum(1.0, tick.runnable / cluster.cpus) for tick in ticks], axis=0)
        # What services demand and do not get is gone here. Beyond this much of it their requests would wait too long.
        demand = cluster.population.demand[running]
        demanded = np.bincount(cluster.node[running], weights=demand, minlength=len(cluster.cpus))
        over = (slowed > self._longest + _TOLERANCE) | (demanded > self._allowed + _TOLERANCE)
        run.over_seconds += int(np.count_nonzero(busy & over))
        run.busy_seconds += int(busy.sum())
        used = np.mean([tick.used.sum() for tick in ticks]) / cluster.cpus[cluster.alive].sum()
        run.utilization.append(float(used))
        serving = self._serving[running[self._serving]]
        if len(serving):
            nodes = cluster.node[serving]
            slowdowns = [np.maximum(1.0, tick.runnable[nodes] / cluster.cpus[nodes]) for tick in ticks]
            values, counts = np.unique(slowdowns, return_counts=True)
            run.slowdowns.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def _kinds(scenario: Scenario) -> Whole:
    """Return (groups,) a number that is the same for groups whose pods no scheduler tells apart."""
    kinds = [(group.name, *group.requests.items()) for group in scenario.pods]
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    return np.array([numbers[kind] for kind in kinds])
