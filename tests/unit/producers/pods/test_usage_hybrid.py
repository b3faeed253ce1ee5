"""Usage of pods on hosts with two cgroup trees, of which some runtimes use one only."""

import shutil
from pathlib import Path

import pytest

from tests.support.machine import POD, UID, Host, Rig, container, lines


def test_on_a_hybrid_host_a_pod_that_runs_in_one_tree_only_is_read_there(tmp_path: Path) -> None:
    host = Host(tmp_path, "hybrid")
    both, inner = f"docker/{container(7)}", f"{POD}/{container(1)}"

    def move(second: int) -> None:
        for path in (both, POD, inner):
            host.set(path, cpu=second / 4)
        shutil.rmtree(host.root / "unified" / inner)
        (host.root / "unified" / POD / "cpu.stat").write_text("usage_usec 0\n")  # its runtime does not use this tree

    rig = Rig(host)
    move(4)
    rig.read()
    for second in (5, 6):
        move(second)
        rows = lines(rig.block())
        assert {key: row["cpu_cores"] for key, row in rows.items()} == {container(7): 0.25, UID: 0.25}
        assert rows[UID]["cpu_pressure"] is None


def test_on_a_hybrid_host_a_pod_that_starts_in_one_tree_only_loses_none_of_its_usage(tmp_path: Path) -> None:
    host = Host(tmp_path, "hybrid")
    rig, inner = Rig(host), f"{POD}/{container(1)}"
    host.set(f"docker/{container(7)}")
    host.set(POD)
    rig.read()
    spent = 0.0
    for second in range(1, 4):
        host.set(POD, cpu=second / 4)
        (host.root / "unified" / POD / "cpu.stat").write_text("usage_usec 0\n")
        host.set(inner, cpu=second / 4)
        shutil.rmtree(host.root / "unified" / inner)
        spent += lines(rig.block()).get(UID, {"cpu_cores": 0})["cpu_cores"]
    assert spent == pytest.approx(0.75)
