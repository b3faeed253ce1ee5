"""What is measured on a machine in a folder, and the limits that follow; on virtual time."""

from pathlib import Path
from typing import Any

import pytest

from producers import clock as grid
from producers.pods.census import Census
from schemas import settings
from schemas.messages.facts import PodFacts
from schemas.sections.govern import Govern
from schemas.settings import SettingsError
from spazio.governing import governor
from spazio.governing.governor import Governor, Turn
from spazio.governing.journal import Journal
from spazio.governing.limiter import Limiter
from spazio.governing.observer import Node, Observer
from tests.support.governed import Knobs, layout
from tests.support.machine import MIB, Host, container

PROD, MID, BATCH = (f"{n:08x}-1b2c-4d3e-8f40-0123456789ab" for n in (1, 2, 3))
GIB = 1 << 30


def path(uid: str) -> str:
    return f"kubepods/burstable/pod{uid}"


def facts(uid: str, **more: Any) -> PodFacts:
    given: dict[str, Any] = {"priority": {PROD: 9000, MID: 7000, BATCH: 5000}.get(uid), "created_us": 1} | more
    return PodFacts(
        node="n1", pod=uid, namespace="s", name=uid, version=1, at_us=1, phase="Running", requests={}, limits={},
        labels={}, annotations={}, workload="s/w", **given,
    )  # fmt: skip


LOWER = {uid: facts(uid) for uid in (MID, BATCH)}


class Machine:
    """A machine of 2 CPUs and 8 GiB with one pod of each tier, and its governor.

    Attributes:
        knobs: Control files by UID.
    """

    def __init__(self, host: Host, **settings: Any) -> None:
        self.host = host
        self.knobs = {uid: Knobs(host, path(uid)) for uid in (PROD, MID, BATCH)}
        for uid in self.knobs:
            host.set(f"{path(uid)}/{container(1)}")
        self._totals = dict.fromkeys((*self.knobs, "node", "waited", "pressure"), 0.0)
        census = Census(host.root, host.proc, clock=lambda: host.now / grid.SECOND)
        self.observer = Observer(census, layout(host), host.proc, descriptors=4096, monotonic=host.monotonic)
        journal = Journal(host.root.parent / "govern.json", "b")
        self.governor = Governor(Limiter(host.root, journal), layout(host), Govern(**settings))
        self.second()

    def second(
        self,
        prod: float = 0,
        mid: float = 0,
        batch: float = 0,
        *,
        pressure: float = 0,
        waited: float = 0,
        runnable: int = 1,
        available: int = 6 * GIB,
    ) -> Node | None:
        """Let a second pass in which pods use so many cores; return what was measured."""
        self.host.sleep(1)
        used = {PROD: prod, MID: mid, BATCH: batch, "node": prod + mid + batch, "waited": waited, "pressure": pressure}
        for name, amount in used.items():
            self._totals[name] += amount
        for uid, knobs in self.knobs.items():
            # The counters of the kernel, beside control files that the governor may have changed.
            kept = knobs.all()
            waiting = self._totals["pressure"] if uid == PROD else 0.0
            self.host.set(
                path(uid),
                cpu=self._totals[uid],
                pressures=(waiting, 0, 0),
                memory=1200 * MIB,
                inactive=176 * MIB,
            )
            for name, content in kept.items():
                knobs[name] = content
        self.host.set_node(
            busy=self._totals["node"],
            spent=self._totals["node"],
            waited=self._totals["waited"],
            runnable=runnable,
            available=available,
        )
        return self.observer.read()

    def turn(self, lower: dict[str, PodFacts] | None = None, **measured: Any) -> Turn:
        node = self.second(**measured)
        assert node is not None
        return self.governor.turn(node, LOWER if lower is None else lower)

    def quota(self, uid: str) -> float:
        """Return the CPU that a pod may use, in cores."""
        knobs = self.knobs[uid]
        text = knobs["cpu.max"].split()[0] if self.host.layout == "v2" else knobs["cpu.cfs_quota_us"]
        return float("inf") if text in ("max", "-1") else int(text) / 100_000


def test_production_is_everything_but_the_lower_tiers(host: Host) -> None:
    machine = Machine(host)
    node = machine.second(prod=0.5, mid=0.25, batch=0.75)
    assert node is not None
    assert node.used_cores == pytest.approx(1.5, abs=0.02)
    assert node.production_cores([MID, BATCH]) == pytest.approx(0.5, abs=0.02)
    assert (node.cores, node.memory_bytes) == (2, 8 * GIB)


@pytest.mark.parametrize("layout_name", ["v2", "hybrid"])
def test_the_pressure_is_that_of_production_where_cgroups_have_it(tmp_path: Path, layout_name: str) -> None:
    machine = Machine(Host(tmp_path, layout_name))
    node = machine.second(prod=0.5, pressure=0.375, waited=1, runnable=9)
    assert node is not None
    assert node.pressure([MID, BATCH], busy_from=0.8) == pytest.approx(0.375)
    assert node.pressure([PROD, MID], busy_from=0.8) == 0


def test_the_pressure_of_the_node_counts_while_threads_wait_for_cpus_and_the_node_is_busy(tmp_path: Path) -> None:
    machine = Machine(Host(tmp_path, "v1"))

    def pressure(**measured: Any) -> float | None:
        node = machine.second(waited=0.75, **measured)
        assert node is not None
        return node.pressure([MID, BATCH], busy_from=0.8)

    assert pressure(prod=2, runnable=2) == 0  # throttled threads wait, and are not runnable
    assert pressure(prod=2, runnable=9) == pytest.approx(0.5)
    assert pressure(prod=2, runnable=9) == pytest.approx(0.75)
    assert pressure(batch=1.5, runnable=9) == 0


def test_what_production_leaves_is_shared_and_production_is_never_limited(host: Host) -> None:
    machine = Machine(host)
    before = machine.knobs[PROD].all()
    turn = machine.turn(prod=0.6, mid=0.2, batch=0.8)
    assert (turn.mid, turn.batch, turn.failures) == (1, 1, [])
    assert machine.quota(MID) == pytest.approx(0.3, abs=0.02)
    assert machine.quota(BATCH) == pytest.approx(0.7, abs=0.02)
    assert machine.knobs[BATCH]["cpu.idle"] == "1"
    assert machine.knobs[MID]["cpu.idle"] == "0"
    assert machine.knobs[PROD].all() == before


def test_batch_is_suppressed_at_once_and_keeps_its_floor(host: Host) -> None:
    machine = Machine(host, floor=0.05)
    machine.turn(prod=0.2, batch=1.4)
    turn = machine.turn(prod=1.6, batch=0.4)
    assert turn.output is not None
    assert turn.output.at_floor
    assert machine.quota(BATCH) == pytest.approx(0.1)


def test_limits_come_back_slowly_and_go_when_the_pods_are_no_longer_of_a_lower_tier(host: Host) -> None:
    machine = Machine(host, release=0.1)
    before = machine.knobs[BATCH].all()
    machine.turn(prod=1.6, batch=0.4)
    quotas = []
    for _ in range(4):
        machine.turn(lower={BATCH: LOWER[BATCH]})
        quotas.append(machine.quota(BATCH))
    assert quotas == pytest.approx([0.24, 0.44, 0.64, 0.84], abs=0.02)
    turn = machine.turn(lower={})
    assert (turn.output, machine.knobs[BATCH].all()) == (None, before)


def test_a_new_pod_is_measured_from_its_start(host: Host) -> None:
    machine = Machine(host)
    machine.second()
    new = "ffffffff-1b2c-4d3e-8f40-0123456789ab"
    host.set(path(new), cpu=0.75)
    host.set(f"{path(new)}/{container(1)}")
    node = machine.second(batch=0.75)
    assert node is not None
    assert node.usages[new].cpu_cores == pytest.approx(0.75)


def test_a_new_pod_suppresses_nobody_until_its_facts_have_been_asked_for(host: Host) -> None:
    machine = Machine(host)
    machine.turn(prod=0.2, batch=1.4)
    node = machine.second(prod=1.2, batch=0.4, pressure=1)
    assert node is not None
    machine.governor.turn(node, LOWER, unsettled=[PROD, "gone"])
    assert machine.quota(BATCH) >= 1.39
    machine.turn(prod=1.2, batch=0.4)
    assert machine.quota(BATCH) == pytest.approx(0.4, abs=0.02)


def test_memory_high_is_what_a_pod_uses_and_its_part_of_what_is_free(modern: Host) -> None:
    machine = Machine(modern, memory_reserve=0.25)
    machine.turn(available=4 * GIB)
    assert int(machine.knobs[BATCH]["memory.high"]) == 2 * GIB  # 1 GiB used, and half of 4 GiB less 2 in reserve
    machine.turn(available=2 * GIB - 100 * MIB)
    assert int(machine.knobs[BATCH]["memory.high"]) == pytest.approx(974 * MIB, abs=MIB)


@pytest.mark.parametrize("layout_name", ["v1", "hybrid"])
def test_version_1_has_no_limit_of_memory_and_evicts_instead(tmp_path: Path, layout_name: str) -> None:
    machine = Machine(Host(tmp_path, layout_name), evict=True)
    turn = machine.turn(available=300 * MIB)
    assert turn.output is not None
    assert turn.output.evict == "memory"
    assert "memory.high" not in machine.knobs[BATCH].all()


def test_a_tree_without_the_cpu_controller_is_reported(tmp_path: Path) -> None:
    machine = Machine(Host(tmp_path, "v2"))
    for knobs in machine.knobs.values():
        for name in ("cpu.max", "memory.high"):
            (knobs.folder / name).unlink()
    machine.host.sleep(1)
    node = machine.observer.read()
    assert node is not None
    (failure,) = machine.governor.turn(node, LOWER).failures
    assert "no CPU controller" in failure


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [("govern_pressure_low", "0.3", "pressure_low is above"), ("govern_memory_low", "0.2", "memory_low is above")],
)
def test_marks_that_would_contradict_each_other_are_refused(field: str, value: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        settings.load({field: value}, environ={})


def test_the_newest_batch_pod_goes_first_and_what_ends_or_comes_back_does_not() -> None:
    new, old, ending, daemon = (f"{n:08x}" for n in range(4))
    lower = {
        MID: facts(MID, created_us=99),
        old: facts(old, priority=5000, created_us=1),
        new: facts(new, priority=5000, created_us=5),
        ending: facts(ending, priority=5000, created_us=9, terminating=True),
        daemon: facts(daemon, priority=5000, created_us=9, owner_kind="DaemonSet"),
    }

    def first(tried: set[str], running: set[str] | None = None) -> str | None:
        chosen = governor.candidate(lower, running or {*lower}, tried)
        return None if chosen is None else chosen.pod

    assert [first(set()), first({new}), first({new, old}), first({new, old, MID})] == [new, old, MID, new]
    assert first(set(), {MID, old}) == old
    assert first(set(), {ending, daemon}) is None
