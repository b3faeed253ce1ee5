"""What is in no pod, and that no use of the node counts twice or not at all, whatever pods come and go."""

import pytest

from producers.pods import usage
from tests.support.machine import MIB, POD, UID, Host, Rig, container, lines


def test_a_pods_first_block_tells_all_that_it_has_used_since_it_began(host: Host) -> None:
    rig = Rig(host)
    rig.read()
    host.set(f"docker/{container(7)}", cpu=0.5, quota=True, throttled=0.25, pressures=(0.5, 0, 0))
    first, second = (lines(rig.block(2))[container(7)] for _ in range(2))
    assert first["memory_bytes"] == second["memory_bytes"] == 80 * MIB
    assert (first["cpu_cores"], first["throttled"]) == (0.25, 0.125)
    assert first["cpu_pressure"] == (0.25 if host.layout in ("v2", "hybrid") else None)
    assert (second["cpu_cores"], second["throttled"]) == (0, 0)


def test_what_a_pod_used_before_the_first_reading_of_all_is_not_known_and_in_no_block(host: Host) -> None:
    host.set(f"docker/{container(7)}", cpu=40)
    rig = Rig(host)
    assert rig.read() is None
    host.set(f"docker/{container(7)}", cpu=40.25)
    assert rig.block().cpu_cores == [0.25]


def test_a_pod_that_runs_again_is_charged_what_it_has_used_since_and_not_before(modern: Host) -> None:
    modern.set(POD, cpu=30)
    modern.set(f"{POD}/{container(1)}")
    modern.set(f"docker/{container(2)}", cpu=20)
    (modern.root / f"docker/{container(2)}/cgroup.procs").write_text("")
    rig = Rig(modern)
    rig.read()
    modern.remove(f"{POD}/{container(1)}")
    assert [rig.block().pods for _ in range(2)] == [[], []]
    modern.set(POD, cpu=30.5)
    modern.set(f"{POD}/{container(1)}")
    assert lines(rig.block())[UID]["cpu_cores"] == 0.5
    (modern.root / f"docker/{container(2)}/cgroup.procs").write_text("4711\n")
    messages = [lines(rig.block()) for _ in range(10)]
    assert messages[-1][container(2)]["cpu_cores"] == 0


def test_a_pod_that_could_not_be_measured_before_is_not_charged_all_that_it_ever_used(
    modern: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "MAXIMUM_PODS", 1)
    for n in (1, 2):
        modern.set(f"docker/{container(n)}", cpu=50)
    rig = Rig(modern)
    rig.read()
    (messages,) = rig.block().pods
    modern.remove(f"docker/{messages}")
    first, second = rig.block(), rig.block()
    assert messages not in first.pods
    assert (first.cpu_cores, second.cpu_cores) == ([None], [0])


def test_a_pod_whose_containers_lie_astray_is_not_charged_all_that_it_ever_used_when_one_more_comes(
    modern: Host,
) -> None:
    name = f"system.slice/containerd.service/kubepods-burstable-pod{UID.replace('-', '_')}.slice:cri-containerd:"
    rig = Rig(modern)
    modern.set(f"{name}{container(1)}", cpu=50)
    rig.read()
    modern.set(f"{name}{container(2)}", cpu=0.5)
    assert [lines(rig.block())[UID]["cpu_cores"] for _ in range(2)] == [0.5, 0]


def test_pods_and_system_add_up_to_the_node_in_every_block(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MAXIMUM_PODS", 3)
    first, two, three, four = (f"docker/{container(n)}" for n in range(1, 5))
    astray = f"system.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice:cri-containerd:"
    host.set(first, cpu=100)
    host.set_node(spent=1000)
    rig = Rig(host)
    rig.read()
    steps: list[
        tuple[float, dict[str, float | None]]
    ] = [  # the node's growth, and counters; None: removed, -1: garbage
        (0.5, {first: 100.25}),
        (0.5, {first: -1}),
        (1.5, {first: 101.25}),
        (1.5, {two: 0.75}),
        (1.0, {first: 101.5, two: 0.75, f"{astray}{container(5)}": 0.25}),
        (1.0, {two: 1.0, f"{astray}{container(5)}": 0.5, f"{astray}{container(6)}": 0.25}),
        (1.0, {two: 0.5, f"{astray}{container(6)}": 0.5}),
        (1.0, {first: None, f"{astray}{container(5)}": None}),
        (1.75, {three: 0.25, four: 0.5}),
        (1.75, {two: None, three: 0.5, four: 1.0}),
        (1.75, {first: 0.5, four: 1.5}),
    ]
    spent, messages = 1000.0, []
    for growth, counters in steps:
        for path, cpu in counters.items():
            if cpu is None:
                host.remove(path)
            else:
                host.set(path, cpu=cpu)
                if cpu < 0:
                    host.spoil(path)
        spent += growth
        host.set_node(spent=spent)
        block = rig.block()
        assert sum(filter(None, block.cpu_cores)) + (block.system_cpu_cores or 0) == pytest.approx(growth)
        messages.append(block.system_cpu_cores)
    assert messages[:4] == pytest.approx([0.25, 0.5, 1.0, 0.75])


def test_what_is_in_no_pod_is_the_systems(host: Host) -> None:
    rig = Rig(host)
    for n in (1, 2):
        host.set(f"docker/{container(n)}", cpu=3)
    host.set_node(spent=50)
    rig.read()
    host.set(f"docker/{container(1)}", cpu=3.5)
    host.set(f"docker/{container(2)}", cpu=3.75)
    host.set_node(spent=51.5, available=7000 * MIB)
    block = rig.block()
    assert block.system_cpu_cores == pytest.approx(0.25)
    assert block.system_memory_bytes == (8192 - 7000 - 2 * 80) * MIB


@pytest.mark.parametrize("path", [POD, f"docker/{container(1)}"])
def test_beside_pods_of_a_kubelet_file_pages_that_the_system_works_with_are_its_memory(host: Host, path: str) -> None:
    """Of 8 GiB 1 MiB is free and 2 GiB are file pages that nothing works with; the kernel could give 6 GiB away."""
    rig = Rig(host)
    for each in (path, f"{POD}/{container(1)}") if path == POD else (path,):
        host.set(each, memory=1000 * MIB, inactive=0)
    rig.read()
    host.set_node(available=6144 * MIB, inactive=2048 * MIB)
    in_use = 8192 - 1 - 2048 if path == POD else 8192 - 6144
    assert rig.block().system_memory_bytes == (in_use - 1000) * MIB


def test_what_other_machines_took_is_nobodys(host: Host) -> None:
    rig = Rig(host)
    host.set_node(spent=50, stolen=10)
    rig.read()
    host.set_node(spent=50.5, stolen=11)
    assert rig.block().system_cpu_cores == pytest.approx(0.5)


def test_what_a_new_pod_used_before_its_first_block_is_not_the_systems(host: Host) -> None:
    rig = Rig(host)
    rig.read()
    host.set(f"docker/{container(1)}", cpu=0.75)
    host.set_node(spent=1)
    assert rig.block().system_cpu_cores == pytest.approx(0.25)


def test_a_cgroup_that_was_made_again_under_its_old_path_begins_at_nothing(host: Host) -> None:
    host.set(f"docker/{container(1)}", cpu=30)
    rig = Rig(host)
    rig.read()
    host.set(f"docker/{container(1)}", cpu=0.5)
    host.set_node(spent=1)
    block = rig.block()
    assert lines(block)[container(1)]["cpu_cores"] == 0.5
    assert block.system_cpu_cores == pytest.approx(0.5)
