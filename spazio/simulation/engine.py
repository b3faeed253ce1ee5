"""One run: a scenario, a scheduler and a seed, from the first pod to the last, in virtual time.

kube-scheduler's part: pods wait in order of creation; a refused pod backs off for one second, doubling to ten, and is
tried again when a pod has ended or, under spazio, when a second of telemetry has come. It sees a pod's end at
once, and binds at most so many pods a second.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spazio.simulation import schedulers
from spazio.simulation.cluster import ABSENT, DONE, RUNNING, TICKS, WAITING, Cluster, Population, Shown, Whole, populate
from spazio.simulation.scenario import PRODUCT, Scenario
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
        bound, began, ended: Virtual times, as those of creation; NaN: never.
        over_seconds: Node-seconds in which the mean slowdown was beyond the policy.
        busy_seconds: Node-seconds in which any pod ran.
        utilization: (seconds,) CPU in use over all CPUs.
        slowdowns: Slowdowns of serving pods, one for each pod and tenth of a second.
        kills: Out-of-memory kills.
        refusals: Attempts to place a pod that found no node.
        seconds: Virtual time from the first possible creation to the end.
    """

    population: Population
    bound: NDArray[np.float64]
    began: NDArray[np.float64]
    ended: NDArray[np.float64]
    over_seconds: int = 0
    busy_seconds: int = 0
    utilization: list[float] = field(default_factory=list)
    slowdowns: list[NDArray[np.float64]] = field(default_factory=list)
    kills: int = 0
    refusals: int = 0
    seconds: float = 0.0


async def run(scenario: Scenario, scheduler: str, seed: int) -> Run:
    """Run one scheduler with one seed; the same seed has the same pods and the same physics under each scheduler."""
    return await _Engine(scenario, scheduler, seed).run()


class _Engine:
    def __init__(self, scenario: Scenario, name: str, seed: int) -> None:
        self._scenario, self._is_spazio = scenario, name in PRODUCT
        population = populate(scenario, SETTLED_SECONDS, np.random.default_rng([seed, 1]))
        self._cluster = Cluster(scenario, population, np.random.default_rng([seed, 2]))
        self._voice = Voice(scenario, self._cluster, requests=scenario.keep_requests or not self._is_spazio)
        self._scheduler: Scheduler = schedulers.MAKE[name](scenario, self._voice, seed)
        self._losses = sorted(scenario.losses, key=lambda loss: loss.at, reverse=True)
        self._names = list(self._voice.nodes)
        self._alive = np.arange(len(self._names))
        count = len(population.created)
        self._queue: list[int] = []
        self._retry_at, self._tries = np.zeros(count), np.zeros(count, dtype=np.int64)
        self._allowance, self._event = 0.0, False
        self._serving = np.flatnonzero(population.demand > 0)
        cluster = self._cluster
        self._run = Run(population, cluster.bound, cluster.began, cluster.ended)

    async def run(self) -> Run:
        scenario, cluster, number = self._scenario, self._cluster, 0
        ends = cluster.ends
        while True:
            await self._second(number)
            number += 1
            if number >= SETTLED_SECONDS + scenario.seconds or (ends.any() and (cluster.state[ends] == DONE).all()):
                break
        self._run.kills, self._run.seconds = cluster.kills, number - SETTLED_SECONDS
        return self._run

    async def _second(self, number: int) -> None:
        ticks: list[Shown] = []
        changes: list[Change] = []
        for tick in range(TICKS):
            now = number + tick / TICKS
            self._create(now)
            self._lose(now)
            await self._schedule(now)
            shown, began, ended = self._cluster.tick(now)
            ticks.append(shown)
            events: tuple[tuple[Whole, Event], ...] = ((began, "started"), (ended, "exited"))
            for pods, event in events:
                for pod in pods.tolist():
                    changes.append((pod, event, now))
                    self._scheduler.hear(self._voice.facts(pod, now, deleted=event == "exited"))
            self._event |= bool(len(ended))
        self._measure(ticks)
        messages = self._voice.second(number, ticks, changes) if self._is_spazio else ()  # only spazio reads messages
        self._scheduler.observe(number + 1.0, ticks, messages)
        self._event |= self._is_spazio

    def _create(self, now: float) -> None:
        cluster = self._cluster
        created = np.flatnonzero((cluster.state == ABSENT) & (cluster.population.created <= now))
        cluster.state[created] = WAITING
        self._queue += created.tolist()

    def _lose(self, now: float) -> None:
        while self._losses and self._losses[-1].at + SETTLED_SECONDS <= now:
            before = set(self._alive.tolist())
            lost = self._cluster.lose(self._losses.pop().nodes)
            self._alive = np.flatnonzero(self._cluster.alive)
            self._names = [self._voice.nodes[index] for index in self._alive.tolist()]
            for pod in lost.tolist():
                self._scheduler.hear(self._voice.facts(pod, now))
                self._tries[pod] = 0
            for node in before - set(self._alive.tolist()):
                self._scheduler.leave(self._voice.nodes[node])
            self._queue = sorted(self._queue + lost.tolist())
            self._event = True

    async def _schedule(self, now: float) -> None:
        """Place pods in their order, as many as the scheduler manages in a tick."""
        most = self._scenario.binds_per_second / TICKS
        self._allowance = min(self._allowance + most, max(1.0, most))
        left: list[int] = []
        event, self._event = self._event, False
        for position, pod in enumerate(self._queue):
            if self._allowance < 1.0:
                left += self._queue[position:]
                self._event = event  # those behind have not been tried
                break
            waited = self._tries[pod] > 0
            if waited and not (event and now >= self._retry_at[pod]):
                left.append(pod)
                continue
            self._allowance -= 1.0
            chosen = await self._scheduler.place(pod, self._names, now)
            if chosen is None:
                backoff = min(_LONGEST_BACKOFF, _BACKOFF_SECONDS * 2.0 ** self._tries[pod])
                self._retry_at[pod] = now + backoff
                self._tries[pod] += 1
                self._run.refusals += 1
                left.append(pod)
                continue
            self._cluster.bind(pod, int(self._alive[chosen]), now)
            self._scheduler.hear(self._voice.facts(pod, now))
        self._queue = left

    def _measure(self, ticks: Sequence[Shown]) -> None:
        cluster, run = self._cluster, self._run
        running = cluster.state == RUNNING
        busy = np.bincount(cluster.node[running], minlength=len(cluster.cpus)) > 0
        slowdown = np.mean([np.maximum(1.0, tick.runnable / cluster.cpus) for tick in ticks], axis=0)
        run.over_seconds += int(np.count_nonzero(busy & (slowdown > self._scenario.slowdown + _TOLERANCE)))
        run.busy_seconds += int(busy.sum())
        used = np.mean([tick.used.sum() for tick in ticks]) / cluster.cpus[cluster.alive].sum()
        run.utilization.append(float(used))
        serving = self._serving[running[self._serving]]
        if len(serving):
            nodes = cluster.node[serving]
            run.slowdowns += [np.maximum(1.0, tick.runnable[nodes] / cluster.cpus[nodes]) for tick in ticks]
