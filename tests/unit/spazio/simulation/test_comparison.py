"""What a run keeps of the slowdowns of services, and what a comparison prints where there is no figure."""

import asyncio
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spazio.simulation import compare, engine, outcome
from spazio.simulation.cluster import TICKS
from spazio.simulation.engine import Run
from spazio.simulation.scenario import Scenario

SERVICES = Scenario.model_validate(
    {
        "name": "services",
        "seconds": 30,
        "nodes": [{"count": 2, "cpus": 4}],
        "pods": [{"name": "s", "kind": "serving", "count": 40, "cores": 0.25}],
    }
)


@pytest.fixture(scope="module")
def services() -> Run:
    return asyncio.run(engine.run(SERVICES, "kube", 1))


def test_a_run_keeps_each_slowdown_once_however_long_it_is(services: Run) -> None:
    running = services.seconds - (services.began - engine.SETTLED_SECONDS)
    assert sum(services.slowdowns.values()) == pytest.approx(running.sum() * TICKS, abs=TICKS * len(running))
    assert len(services.slowdowns) < 20


@given(st.lists(st.sampled_from([1.0, 1.0125, 1.2625, 1.5125, 7.0]), min_size=1, max_size=80))
def test_figures_of_slowdowns_that_are_counted_are_those_of_all_of_them(services: Run, slowdowns: list[float]) -> None:
    figures = outcome.of(replace(services, slowdowns=Counter(slowdowns)), SERVICES)
    points = {f"p{point}": np.percentile(slowdowns, point) for point in (25, 50, 75, 90, 95, 99)}
    others = {"mean": np.mean(slowdowns), "std": np.std(slowdowns), "min": min(slowdowns), "max": max(slowdowns)}
    for figure, value in (points | others).items():
        assert figures[f"serving_slowdown_{figure}"] == pytest.approx(value, rel=1e-12, abs=1e-12)


def test_a_figure_that_no_seed_has_is_null_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.run(lambda: SERVICES, seeds=1, only=["kube"], out=None, json_output=True) == 0

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    document = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert document["schedulers"]["kube"]["job_seconds"] == {"mean": None, "half": None, "seeds": 0, "lacking": 1}


def test_what_a_scenario_is_about_is_printed_as_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = SERVICES.model_copy(update={"about": "see [/docs] and [red]ones"})
    assert compare.run(lambda: wanted, seeds=1, only=["kube"], out=None, json_output=False) == 0
    assert "see [/docs] and [red]ones" in capsys.readouterr().out
