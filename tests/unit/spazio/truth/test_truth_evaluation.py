"""How many pods fit by the measured slowdowns, and which cells count."""

from pathlib import Path

import pytest

from spazio.truth import evaluation, report
from spazio.truth.evaluation import Cell
from spazio.truth.recording import Recording, Step


def steps(*measured: tuple[int, float], family: str = "burn") -> list[Step]:
    return [Step(family, "cpu", pods, family, 0, 31_000_000, slowdown) for pods, slowdown in measured]


def test_what_fits_lies_between_two_steps_by_the_inverse_of_the_slowdown() -> None:
    assert evaluation.most(steps((1, 1.0), (3, 1.5), (5, 2.5)), 2.0) == pytest.approx(
        3 + 2 * (1 / 1.5 - 0.5) / (1 / 1.5 - 0.4)
    )
    # An open loop without room left: the number is that of the step that held, and a little.
    assert evaluation.most(steps((8, 1.6), (12, 80.0)), 2.0) == pytest.approx(8.8, abs=0.1)


def test_a_measurement_below_the_one_before_is_averaged_with_it() -> None:
    disturbed = evaluation.most(steps((1, 1.0), (2, 2.6), (3, 1.2), (4, 1.9), (5, 3.0)), 2.0)
    assert disturbed is not None
    assert 4 < disturbed < 5


def test_slowdowns_count_from_the_fastest_step_since_pods_cannot_speed_each_other_up() -> None:
    idle = evaluation.most(steps((1, 1.0), (5, 0.69), (10, 1.0), (15, 1.54), (20, 2.17)), 2.0)
    assert idle == pytest.approx(evaluation.most(steps((1, 1.0), (5, 1.0), (10, 1.45), (15, 2.23)), 2.0), abs=0.05)


def test_nothing_is_known_where_every_number_of_pods_held_and_none_fits_where_the_first_did_not() -> None:
    assert evaluation.most(steps((1, 1.0), (2, 1.4)), 2.0) is None
    assert evaluation.most(steps((1, 2.4), (2, 4.0)), 2.0) == 0


def test_a_step_that_something_disturbed_gives_the_truth_but_no_cell(tmp_path: Path) -> None:
    measured = steps((1, 1.0), (2, 1.5), (3, 2.5))
    assert not list(evaluation.cells(Recording(tmp_path, {}, measured), [], 2.0, [10.0]))
    measured[1].disturbed = 0.4
    assert evaluation.most(measured, 2.0) == pytest.approx(2.625)


def test_the_verdict_names_what_is_missed_and_by_whom(tmp_path: Path) -> None:
    right = Cell("burn", 1, 2.0, 30.0, 2.0, 2.1, 1.0, None, None)
    wrong = Cell("think", 1, 2.0, 30.0, 6.0, 2.0, 8.0, None, None)
    recording = Recording(tmp_path, {}, [*steps((1, 1.0), (2, 30.0), family="think")])
    lines = report.verdict(recording, [right, wrong])
    assert "| right 30 s after a change in 90% of cells | 50% | ✗ | think (1) |" in lines
    assert "| `lower` holds in 90% of cells of every family | 0% | ✗ | think |" in lines
    assert "| no family unstable at the number that `lower` allows | 1 family | ✗ | think |" in lines


def test_the_verdict_marks_no_goal_that_nothing_was_measured_for(tmp_path: Path) -> None:
    alone = steps((1, 1.0))
    quick = report.verdict(Recording(tmp_path, {}, alone), [Cell("burn", 1, 2.0, 10.0, 2.0, 2.1, 1.0, None, None)])
    assert "| right 10 s after a change in 80% of cells | 100% | ✓ |  |" in quick
    assert "| right 30 s after a change in 90% of cells | not measured |  |  |" in quick
    by_memory = [Step("hold", "memory", 1, "hold", 0, 31_000_000, fits=3.0)]
    held = report.verdict(Recording(tmp_path, {}, by_memory), [Cell("hold", 1, 2.0, 10.0, 2.0, 2.1, 1.0, None, None)])
    assert held[-1] == "| no family unstable at the number that `lower` allows | not measured |  |  |"
    assert all("| not measured |  |" in line for line in report.verdict(Recording(tmp_path, {}, alone), [])[2:])


def test_the_report_has_no_share_of_classes_that_were_not_estimated(tmp_path: Path) -> None:
    machine = {"cpus": 2, "memory_bytes": 1 << 30, "kernel": "6"}
    recording = Recording(tmp_path, machine, steps((1, 1.0)))
    forms = {"composed": [Cell("burn", 1, 2.0, 10.0, 2.0, 2.1, 1.0, None, None)], "least_squares": []}
    assert "| burn | 1 | 100% | 0% | 100% | +0.1 | – | – |" in report.text(recording, forms, 2.0)
    document = report.document(recording, forms)["forms"]
    assert document["composed"]["figures"]["room_right"] is None
    assert document["least_squares"]["figures"]["right"] is None
