"""What the first screen says of a node: what is sure, what a pod is, and what runs out first."""

import sys
from collections import deque
from pathlib import Path

import pytest

from schemas.messages.estimate import Availability
from schemas.settings import load
from spazio.terminal import screen


def row(**fields: object) -> Availability:
    values: dict[str, object] = {
        "node": "vm", "at_us": 1, "seq": 1, "available": 12.4, "lower": 9.0, "upper": 14.0, "signal": 1.0, "cost": 0.1,
        "capacity": 1.0, "pods": 0, "binding": "cpu", "mode": "signal", "churn": False, "prior": 1.0, "usage": {},
        "explained": 1.0, "gap": 0.0, "since_us": 1,
    }  # fmt: skip
    return Availability.model_validate(values | fields)


def test_where_no_pod_was_seen_the_unit_is_the_reference_pod() -> None:
    first, second = screen.sentences([row()], load({"policy_slowdown": "1.5"}, environ={}))
    assert first == "vm: at least 9 more pods fit, 12.4 expected; CPU time runs out first; 0 pods running."
    assert "the reference pod of 100m CPU and 200 MiB, since none was seen yet" in second
    assert "at most 1.5 times as long as alone" in second


def test_what_was_started_lately_is_what_is_counted() -> None:
    mix = {"web": 0.6, "-": 0.2, "ml": 0.15, "cron": 0.05}
    first, second = screen.sentences([row(mix=mix, pods=1, prior=0.1, binding="memory")], load({}, environ={}))
    assert "memory runs out first; 1 pod running" in first
    assert "60% web, 20% of unknown class, 15% ml, and others)" in second
    _, second = screen.sentences([row(mix={"dns": 0.09}, pods=1, prior=0.9)], load({}, environ={}))
    assert "(9% dns, 91% the mean pod of the cluster)" in second


def test_a_number_that_still_moves_after_a_minute_is_a_range_behind_the_least_bound() -> None:
    moving = [row(available=8.6, lower=3.0), row(available=20.2, lower=9.0), row(available=14.0, lower=7.0)]
    first, _ = screen.sentences(moving, load({}, environ={}))
    assert "at least 3 more pods fit, still learning, 9 to 20 expected" in first


@pytest.mark.parametrize(
    ("values", "churn", "steady"),
    [
        ([12.0, 12.1, 12.3, 12.2], False, True),
        ([12.0, 12.1, 1.1, 12.2], False, False),
        ([12.0, 12.1, 12.3, 12.2], True, False),
    ],
)
def test_a_number_that_still_moves_is_not_reported(values: list[float], churn: bool, steady: bool) -> None:
    seen = deque((6.0 + 2 * step, row(available=value, churn=churn)) for step, value in enumerate(values))
    assert screen._steady(seen) == steady


@pytest.mark.parametrize(
    ("started", "path", "shown"),
    [
        (".venv/bin/spazio", "elsewhere", ".venv/bin/spazio"),
        (".venv/bin/spazio", ".venv/bin", "spazio"),
        ("/opt/spazio/bin/spazio", ".venv/bin", "/opt/spazio/bin/spazio"),
        ("/here/spazio/__main__.py", ".venv/bin", f"{sys.executable} -m spazio"),
    ],
)
def test_the_screen_names_spazio_as_the_user_can_start_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, started: str, path: str, shown: str
) -> None:
    program = tmp_path / ".venv" / "bin" / "spazio"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [started, "up"])
    monkeypatch.setenv("PATH", str(tmp_path / path))
    assert screen.program() == shown


def test_an_address_that_is_not_known_yet_is_not_shown_as_an_empty_one(capsys: pytest.CaptureFixture[str]) -> None:
    addresses = {"dashboard": "", "http": "http://127.0.0.1:1", "extender": "", "history": "h"}
    screen.show(addresses, load({}, environ={}))
    lines = {words[0]: words[1:] for line in capsys.readouterr().out.splitlines() if (words := line.split())}
    assert lines["metrics"] == ["http://127.0.0.1:1/metrics"]
    for name in ("dashboard", "scheduler"):
        assert " ".join(lines[name]) == "has not started yet; its address will be in the file below"
    assert lines["addresses"][0].endswith("addresses.json")
