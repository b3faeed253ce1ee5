"""Disks and network interfaces: which count, and from when."""

from pathlib import Path

import pytest

from producers import disk, network, source
from tests.unit.producers.rig import FROZEN, A, B, edit, near, put


def test_a_disk_that_is_plugged_in_counts_from_its_second_reading(proc: Path) -> None:
    item = disk.Disk(proc)
    edit(proc, "diskstats", r"^ *259.*\n", "")
    source.read(item, A)
    put(proc, "b")
    assert source.read(item, B) == near(0.4, 1000 * 512 / 0.1)


def test_a_machine_without_disks_has_no_disk_metrics(proc: Path) -> None:
    (proc / "diskstats").write_text("")
    item = disk.Disk(proc)
    assert source.read(item, A) == source.read(item, B) == (None, None)


@pytest.mark.parametrize(
    ("listed", "whole"),
    [
        ("vda vda1 vda15", "vda"),
        ("nvme0n1 nvme0n1p1 nvme0c0n1 nvme1n1", "nvme0n1 nvme1n1"),
        ("mmcblk0 mmcblk0p2 mmcblk0boot0", "mmcblk0 mmcblk0boot0"),
        ("xvda1 xvdb", "xvda1 xvdb"),
        ("sdp sdp1", "sdp"),
        ("md0 md0p1 dm-1 loop7 ram0 zram1 sr0 zd16 drbd0 bcache0 fd0", ""),
        ("rbd0 rbd0p1", "rbd0"),
    ],
)
def test_whole_disks_are_recognised_by_their_names(listed: str, whole: str) -> None:
    assert set(disk.disks(tuple(listed.encode().split())).values()) == set(whole.encode().split())


LINE = "259 1 {} 10 0 {} 5 10 0 {} 5 0 {} 10\n"  # sectors read and written, and milliseconds with a request


@pytest.mark.parametrize("head_moves", [False, True])
def test_a_multipath_nvme_disk_counts_once_also_where_the_kernel_accounts_its_paths_alone(
    proc: Path, head_moves: bool
) -> None:
    item = disk.Disk(proc)
    (proc / "diskstats").write_text(
        "".join(LINE.format(name, 0, 0, 0) for name in ("nvme0c0n1", "nvme0c1n1", "nvme0n1"))
    )
    source.read(item, A)
    head = (3000, 1000, 70) if head_moves else (0, 0, 0)
    moved = {"nvme0c0n1": (1000, 500, 60), "nvme0c1n1": (2000, 500, 40), "nvme0n1": head}
    (proc / "diskstats").write_text("".join(LINE.format(name, *counters) for name, counters in moved.items()))
    assert source.read(item, B) == near(0.7 if head_moves else 0.6, 4000 * 512 / 0.1)


@pytest.mark.parametrize(
    "name", ["eth0", "eno1", "enp3s0f1", "ens5", "wlan0", "ib0", "wwan0", "lowpan0", "enx0a1b2c3d4e5f"]
)
def test_physical_interfaces_count(name: str) -> None:
    assert network.counts(name.encode())


@pytest.mark.parametrize(
    "names",
    [
        "lo veth0a1b docker0 docker_gwbridge cni0 br-1a2b br0 virbr0 cali1a2b flannel.1",
        "cilium_host lxc1a2b tunl0 tap0 wg0 bond0 eth0.12 ifb1 dummy0",
        "eni4b2c1d0e9f3 azv12ab kube-ipvs0 ip6tnl0 vxlan.calico",
        "cbr0 azure0 gke0a1b2c3d4 incusbr0 tailscale0 zt7nnig26a",
        "bridge0 bridge12 qbr1a2b3c4d-5e qvb1a2b3c4d-5e qvo1a2b3c4d-5e fwbr100i0 fwpr100p0 fwln100i0 fwln100o1",
        "0a1b2c3d4e5f607 ovn-k8s-mp0 ovs-system br-int br-ex genev_sys_6081 ovn0 0a1b2c3d4e5f_h",
    ],
)
def test_interfaces_that_hand_on_packets_of_others_do_not_count(names: str) -> None:
    assert not [name for name in names.split() if network.counts(name.encode())]


def test_a_new_interface_counts_from_its_second_reading(proc: Path) -> None:
    item = network.Network(proc)
    edit(proc, "1/net/dev", r"^ *eth0:.*\n", "")
    source.read(item, A)
    put(proc, "b")
    assert source.read(item, B) == near(2000.0)


def test_without_access_to_the_hosts_network_the_own_one_is_read_and_that_is_reported(
    proc: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (proc / "1/net").rename(proc / "net")
    item = network.Network(proc)
    source.read(item, A)
    (proc / "net/dev").write_bytes((FROZEN / "b/1/net/dev").read_bytes())
    assert source.read(item, B) == near(152_000.0)
    assert [record.message for record in caplog.records] == ["source.fallback"]
