"""The experiment as a user runs it, in its quick form: real pods, a real pipeline, and numbers that are right."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spazio.truth.pod import Groups, Pod
from tests.e2e.pipeline import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes control groups, which needs root"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("truth")
    command = (sys.executable, "-m", "spazio", "truth", "--quick", "--out", str(folder), "--json")
    done = subprocess.run(command, capture_output=True, text=True, timeout=420, check=False)
    assert done.returncode == 0, done.stderr
    assert (folder / "truth.png").stat().st_size > 10_000
    assert "By family" in (folder / "report.md").read_text()
    document: dict[str, Any] = json.loads(done.stdout)
    print(json.dumps({form: part["figures"] for form, part in document["forms"].items()}))
    return document


def cells(report: dict[str, Any], slowdown: float, family: str = "") -> list[dict[str, Any]]:
    return [
        cell
        for cell in report["forms"]["composed"]["cells"]
        if cell["slowdown"] == slowdown and family in ("", cell["family"])
    ]


def test_what_fits_is_what_was_reported_in_most_cells_and_the_bound_holds(report: dict[str, Any]) -> None:
    result = cells(report, 2.0)
    assert len(result) > 12
    near = [
        abs(cell["available"] - cell["truth"]) <= max(1.0, 0.15 * (cell["truth"] + cell["pods"])) for cell in result
    ]
    assert sum(near) / len(near) >= 0.5
    assert sum(cell["lower"] <= cell["truth"] for cell in result) / len(result) >= 0.8


@pytest.mark.parametrize("family", ["burn", "burn-after-hold"])
def test_one_pod_that_computes_leaves_no_more_room_than_there_is_15_s_after_its_start(
    report: dict[str, Any], family: str
) -> None:
    if report["machine"]["cpus"] != 2:
        pytest.skip("the number is that of two CPUs")
    # A step that something else disturbs gives no cell.
    available = [cell["available"] for cell in cells(report, 2.0, family) if cell["seconds"] >= 15]
    assert available
    assert max(available) <= 4


def groups() -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob("**/spazio-truth"))


def pods() -> set[int]:
    """Return the processes of all pods."""
    files = [file for parent in groups() for file in parent.glob("*/cgroup.procs")]
    return {int(line) for file in files for line in file.read_text().split()}


def descendants(ancestor: int) -> set[int]:
    """Return a process and all that it started."""
    parents = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(file.parent.name)] = int(file.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it ended meanwhile
    descendants = {ancestor}
    while more := {pid for pid, parent in parents.items() if parent in descendants} - descendants:
        descendants |= more
    return descendants


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL], ids=lambda sign: sign.name)
def test_an_experiment_that_is_ended_ends_its_pods_and_its_pipeline(tmp_path: Path, sign: signal.Signals) -> None:
    command = (sys.executable, "-m", "spazio", "truth", "--only", "burn", "--out", str(tmp_path))
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as experiment:
        until(pods, 60, "a pod runs")
        started = descendants(experiment.pid)
        assert started > pods()
        experiment.send_signal(sign)
        _, shown = experiment.communicate(timeout=30)
        assert "Traceback" not in shown
        assert experiment.returncode == (-sign if sign == signal.SIGKILL else 128 + sign)
    # After SIGKILL the kernel ends the processes, and the next experiment removes the groups.
    wait = 20 if sign == signal.SIGKILL else 0.1
    until(lambda: not [pid for pid in started if runs(pid)], wait, "all processes ended")
    if sign == signal.SIGKILL:
        for group in groups():
            for each in group.glob("*/"):
                each.rmdir()
            group.rmdir()
    assert not groups()


def scores() -> set[str]:
    """Return how readily the kernel kills each pod."""
    return {Path(f"/proc/{pid}/oom_score_adj").read_text().strip() for pid in pods()}


@pytest.mark.skipif(len(Path("/proc/swaps").read_text().splitlines()) > 1, reason="the pod would be swapped out")
async def test_a_pod_that_takes_more_memory_than_all_may_is_killed_and_nothing_else(tmp_path: Path) -> None:
    made = Groups(Path("/sys/fs/cgroup"))
    made.open(64 << 20)
    modest, greedy = Pod("burn", ("burn",)), Pod("hold", ("hold", "--bytes", str(1 << 30)))
    try:
        for pod in (modest, greedy):
            await pod.start(made, seed=1, folder=tmp_path)
        assert scores() == {"1000"}
        await asyncio.to_thread(until, lambda: greedy.status is not None, 30, "the pod is killed")
        assert (greedy.status, modest.status) == (-signal.SIGKILL, None)
    finally:
        for pod in (modest, greedy):
            await pod.end()
        made.close()


def test_an_experiment_ends_with_a_pod_that_is_killed_and_says_so(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "spazio", "truth", "--quick", "--only", "burn", "--out", str(tmp_path))
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as experiment:
        until(pods, 60, "a pod runs")
        os.kill(pods().pop(), signal.SIGKILL)
        _, shown = experiment.communicate(timeout=60)
    assert shown.splitlines()[-1] == (
        "spazio: a pod of burn ended with status -9; memory ran out: free some, and measure again"
    )
    assert experiment.returncode == 1
    assert not groups()


def test_nothing_is_left_behind(report: dict[str, Any]) -> None:
    assert report["steps"]
    assert not list(Path("/sys/fs/cgroup").glob("**/spazio-truth"))
