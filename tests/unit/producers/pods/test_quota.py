"""CPU quotas of pods: how long they hold back, and how much of the node's pressure they cause."""

import pytest

from tests.support.machine import POD, UID, Host, Rig, container


def throttled(rig: Rig) -> float | None:
    block = rig.block()
    return block.throttled[block.pods.index(UID)]


@pytest.mark.parametrize("where", ["container", "pod", "both"])
def test_time_held_back_by_a_quota_counts_once_wherever_the_quota_is(host: Host, where: str) -> None:
    inner = f"{POD}/{container(2)}"
    at_pod, at_container = where != "container", where != "pod"
    host.set(f"{POD}/{container(1)}")

    def move(cpu: float, throttled: float) -> None:
        host.set(POD, cpu=cpu, quota=at_pod, throttled=throttled if at_pod else 0)
        host.set(inner, cpu=cpu, quota=at_container, throttled=throttled if at_container else 0)

    rig = Rig(host)
    move(5, 12)
    rig.read()
    move(5.3, 12.7)
    assert throttled(rig) == pytest.approx(0.7)
    assert rig.reader.is_sampling
    move(5.8, 14.3)  # two threads on two CPUs: 0.25 of either's second, held back for 0.8 of both
    assert throttled(rig) == pytest.approx(1.6 / 2.1, abs=1e-4)


def test_pressure_is_owed_to_a_quota_where_nothing_else_waits(host: Host) -> None:
    path, rig = f"docker/{container(1)}", Rig(host)
    host.set(path, quota=True)
    host.set_node()
    assert rig.reader.quota_share() is None
    rig.read()
    for second in range(1, 4):
        rig.reader.sample()
        host.set(path, cpu=0.3 * second, quota=True, throttled=0.7 * second, pressures=(0.7 * second, 0, 0))
        host.sleep(1)
        host.set_node(busy=0.3 * second, waited=0.7 * second, spent=0.3 * second)
        rig.block(0)
        assert rig.reader.quota_share() == pytest.approx(1.0)
    host.sleep(1.6)
    assert rig.reader.quota_share() is None


def test_a_full_node_owes_nothing_to_a_quota_that_holds_back_as_well(host: Host) -> None:
    path, rig = f"docker/{container(1)}", Rig(host)
    host.set(path, quota=True)
    rig.read()
    host.set_node(busy=2, waited=1, spent=2, runnable=6)
    for _ in range(20):
        rig.reader.sample()
    host.set(path, cpu=0.3, quota=True, throttled=0.2)
    host.sleep(1)
    host.set_node(busy=2, waited=1, spent=2, runnable=6)
    rig.block(0)
    assert rig.reader.quota_share() == 0.0


def test_nothing_is_explained_away_before_somebody_has_looked(host: Host) -> None:
    path, rig = f"docker/{container(1)}", Rig(host)
    host.set(path, quota=True)
    rig.read()
    host.set(path, cpu=0.3, quota=True, throttled=0.7)
    host.sleep(1)
    host.set_node(busy=0.3, waited=0.7)
    rig.block(0)
    assert rig.reader.quota_share() == 0.0


def test_a_kernel_without_pressure_owes_nothing_that_could_be_reported(host: Host) -> None:
    (host.proc / "pressure/cpu").unlink()
    rig = Rig(host)
    rig.read()
    rig.block()
    assert rig.reader.quota_share() is None
