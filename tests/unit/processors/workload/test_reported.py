"""What is reported of a class at once: that its cost has become known, though its room is what it was."""

import numpy as np
import pytest

from processors.partition.partition import Partition
from processors.workload import reported
from schemas.messages.estimate import MOSTLY_ASSUMED
from tests.support.processors.mix import configured, rows_of, steady

_COST = (0.5, 1e9)  # as it is assumed below


def seconds_of_known(report_seconds: str, *, restarted: bool = False) -> list[int]:
    """Return the numbers of the blocks whose report says that the cost of class a is known."""
    settings = configured(
        estimate_report_seconds=report_seconds,
        estimate_change_pods="1000",
        estimate_pod_cores=str(_COST[0]),
        estimate_pod_memory_bytes=f"{_COST[1]:.0f}",
    )
    partition, messages = Partition(settings, 0), steady(range(30), {"a": 1}, cost=_COST)
    rows = []
    for message in messages:
        rows += rows_of(partition.fold([message])[0])
        if restarted:
            body, partition = partition.snapshot(), Partition(settings, 0)
            partition.restore(body)
    classes = [(row.seq, (row.classes or {}).get("a")) for row in rows]
    return [seq for seq, item in classes if item is not None and (item.prior or 0.0) <= MOSTLY_ASSUMED]


@pytest.mark.slow
@pytest.mark.parametrize("restarted", [False, True])
def test_a_cost_that_has_become_known_is_reported_at_once_and_once(restarted: bool) -> None:
    first, *_ = seconds_of_known("1")
    assert seconds_of_known("1000", restarted=restarted) == [first]


def test_of_a_state_of_an_earlier_version_nothing_is_taken_for_known() -> None:
    state, template = reported.init(2, 3), reported.init(0, 3)
    state.room[:], state.measured[:] = 4.0, True
    arrays = reported.dump(state)
    assert reported.load(template, arrays).measured.all()
    del arrays["known"]
    old = reported.load(template, arrays)
    assert np.array_equal(old.room, state.room)
    assert not old.measured.any()
    with pytest.raises(ValueError, match="state has no array told"):
        reported.load(template, {})
