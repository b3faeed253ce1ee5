"""A node that is deleted and comes back under its name has what it has now."""

from schemas.settings import load
from tests.support.extender.placement import GIB, Clock, Replica, node
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
