"""The experiment as a user runs it, in its quick form: real pods, a real pipeline, and numbers that are right."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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
    (cell,) = [cell for cell in cells(report, 2.0, family) if cell["pods"] == 1 and cell["seconds"] == 15]
    assert cell["available"] <= 4


def test_nothing_is_left_behind(report: dict[str, Any]) -> None:
    assert report["steps"]
    assert not list(Path("/sys/fs/cgroup").glob("**/spazio-truth"))
