"""A node that is deleted and comes back under its name has what it has now."""

from functools import partial

import numpy as np
import pytest

from schemas.settings import load
from tests.support.extender.placement import GIB, SECOND, START, Clock, Replica, node, report
from tests.support.processors.predicted import prediction
from tests.unit.sinks.extender.nodes import seen


def test_a_node_that_comes_back_without_its_gpus_has_none() -> None:
    replica = Replica(load({}, environ={}), Clock())
    amounts = {"cpu": 4.0, "memory": 16.0 * GIB, "pods": 110.0}
    gpu = {"example.com/gpu": 2.0}
    replica.cluster_state.describe(node("a", uid="first", allocatable=amounts | gpu))
    assert seen(replica, ["a"]).allocatable["example.com/gpu"].tolist() == [2.0]
    replica.cluster_state.describe(node("a", version=2, uid="first", deleted=True))
    replica.cluster_state.describe(node("a", uid="second", allocatable=amounts))
    assert seen(replica, ["a"]).allocatable["example.com/gpu"].tolist() == [0.0]


@pytest.mark.parametrize("step", [1, -1], ids=["reports first", "facts first"])
async def test_a_new_node_has_no_room_by_what_was_reported_of_the_machine_that_had_its_name(step: int) -> None:
    """An extender that starts reads facts and last reports beside each other, and has not seen the deletion."""
    replica = Replica(load({}, environ={}), Clock())
    state, before_us = replica.cluster_state, START - 120 * SECOND
    state.report(report("full", START, 0.25))
    last = [
        partial(state.report, report("new", before_us, 40.0, classes={"default/p": (40.0, 38.0)})),
        partial(state.predict, prediction(node="new", at_us=before_us, assumed=[])),
        partial(state.describe, node("new", created_us=START - 20 * SECOND)),
    ]
    for take in last[::step]:
        take()
    unknown = seen(replica, ["new"])
    assert all(np.isnan(values).all() for values in (unknown.room, unknown.sure, *unknown.peak.values()))
    assert [await replica.place(uid, ["full", "new"]) for uid in "pq"] == ["new", None]
    state.report(report("new", START, 3.0))
    assert seen(replica, ["new"]).room.tolist() == [3.0]
