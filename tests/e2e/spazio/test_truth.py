"""The experiment as a user runs it, in its quick form: real pods, a real pipeline, and numbers that are right."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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


def test_nothing_is_left_behind(report: dict[str, Any]) -> None:
    assert report["steps"]
    assert not list(Path("/sys/fs/cgroup").glob("**/spazio-truth"))
