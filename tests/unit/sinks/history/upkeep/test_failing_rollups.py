"""Roll-ups that cannot be made keep no others from being made."""

from pathlib import Path

import pytest

from sinks.history import layout, view
from sinks.history.upkeep import rollup
from sinks.history.upkeep.rollup import Job
from sinks.history.upkeep.upkeep import Upkeep
from sinks.history.writer import Writer
from tests.support.processors.telemetry import block
from tests.unit.sinks.history.upkeep.steps import CREATED, FIRST, HOUR, at_us, put, settings


@pytest.mark.slow
def test_as_many_as_a_pass_makes_may_fail_for_good_and_the_others_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view.create(tmp_path)
    target = Writer(tmp_path, "S", CREATED, 1)
    for hour in range(4):
        put(target, [block("a", FIRST + hour * HOUR)], 1 + hour)
    damaged = [layout.hour_folder(tmp_path, "samples", at_us(hour * HOUR)) for hour in (0, 1)]
    make, failing = rollup.make, True

    def fail(job: Job) -> None:
        if failing and job.source.parent in damaged:
            raise OSError("a sector cannot be read")
        make(job)

    def made() -> int:
        return len([path for path, _ in layout.files(tmp_path) if path.parents[2].name != "samples"])

    monkeypatch.setattr(rollup, "make", fail)
    monkeypatch.setattr(rollup, "_MOST", 4)
    upkeep = Upkeep(tmp_path)
    made_by_pass = []
    for _ in range(3):
        upkeep.run(at_us(6 * HOUR), settings())
        made_by_pass.append(made())
    assert made_by_pass == [0, 4, 4]
    failing = False
    upkeep.run(at_us(6 * HOUR), settings())
    assert made() == 8
    assert not upkeep._unmade
