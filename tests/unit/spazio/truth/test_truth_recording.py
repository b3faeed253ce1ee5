"""What a second experiment leaves of an earlier recording, and which steps and telemetry belong together."""

import gzip
import json
from pathlib import Path

import pytest

from schemas import settings as all_settings
from spazio import truth
from spazio.service.child import Unstartable
from spazio.truth import experiment, recording
from spazio.truth.recording import Recording, Step

MESSAGE = (1, "spazio.availability.n", b"{} {}")
MACHINE = {"cpus": 2, "memory_bytes": 1 << 30, "kernel": "6"}


def record(folder: Path) -> None:
    """Make a recording of one step."""
    folder.mkdir(exist_ok=True)
    recorded = Recording(folder, MACHINE, [Step("burn", "cpu", 1, "burn", 0, 31_000_000, 1.0)])
    with recording.recorder(recorded) as telemetry:
        telemetry.write(*MESSAGE)
        telemetry.keep()
        recorded.save()


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_an_experiment_that_fails_before_its_first_step_leaves_the_earlier_recording(tmp_path: Path) -> None:
    record(tmp_path / "truth")
    (tmp_path / "file").write_text("")  # so that `spazio up` has no folder for its data
    settings = all_settings.load({"data_dir": str(tmp_path / "file" / "data")}, environ={})
    with pytest.raises(Unstartable):
        await anext(experiment.record(settings, [], tmp_path / "truth", 1.0))
    assert list(recording.load(tmp_path / "truth").messages()) == [MESSAGE]
    assert files(tmp_path / "truth") == [recording.STEPS, recording.TELEMETRY]


def test_steps_are_not_evaluated_with_the_telemetry_of_another_experiment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / "first")
    record(tmp_path / "second")
    (tmp_path / "first" / recording.STEPS).replace(tmp_path / "second" / recording.STEPS)
    settings = all_settings.load({}, environ={})
    assert truth.run(settings, tmp_path / "second", quick=False, only=(), again=True, plots=False) == 2
    message = capsys.readouterr().err.strip()
    assert message.endswith("telemetry.jsonl.gz is of another experiment than steps.json; measure without --again")
    assert files(tmp_path / "second") == [recording.STEPS, recording.TELEMETRY]


def test_a_recording_of_an_earlier_version_is_read_unless_only_its_steps_are_left(tmp_path: Path) -> None:
    step = {"family": "burn", "limit": "cpu", "pods": 1, "workload": "burn", "begin_us": 0}
    (tmp_path / recording.STEPS).write_text(json.dumps({"machine": MACHINE, "steps": [step]}))
    (tmp_path / recording.TELEMETRY).write_bytes(gzip.compress(b"1 spazio.availability.n {} {}\n" * 2))
    assert list(recording.load(tmp_path).messages()) == [MESSAGE, MESSAGE]
    record(tmp_path / "later")
    (tmp_path / "later" / recording.TELEMETRY).replace(tmp_path / recording.TELEMETRY)
    with pytest.raises(ValueError, match="another experiment"):
        list(recording.load(tmp_path).messages())


def test_a_recording_without_a_number_to_compare_is_reported_without_a_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install '.[plots]'")
    record(tmp_path)
    settings = all_settings.load({}, environ={})
    assert truth.run(settings, tmp_path, quick=False, only=(), again=True, plots=True) == 0
    assert "report.md, report.json\n" in capsys.readouterr().out
    assert not (tmp_path / "truth.png").exists()


@pytest.mark.parametrize("again", [False, True])
def test_a_variant_of_which_not_all_forms_can_be_evaluated_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], again: bool
) -> None:
    settings = all_settings.load({"model_variant": "carico"}, environ={})
    assert truth.run(settings, tmp_path / "truth", quick=True, only=("burn",), again=again, plots=False) == 2
    assert capsys.readouterr().err == (
        "spazio: the estimates of composed and least_squares are compared, and composed does not go with the model "
        "variant carico, which has no policy of slowdown; leave --model-variant out\n"
    )
    assert not (tmp_path / "truth").exists()
