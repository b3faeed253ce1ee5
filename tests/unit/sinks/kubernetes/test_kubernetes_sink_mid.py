"""Lending in virtual time: who may write, and that nothing is left at the end, with writes under way or not."""

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from bus.health import Health
from kube import answer
from schemas.messages.prediction import Resources
from schemas.sections.output import Output
from sinks.kubernetes import metric, node
from sinks.kubernetes.mid import Mid
from sinks.kubernetes.writing.pace import Pace
from sinks.kubernetes.writing.writer import Writer
from tests.support.processors.predicted import prediction
from tests.unit.sinks.kubernetes.nodes import NodeServer, access

START = 1_800_000_000.0
CPU, MEMORY = "kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"


class Server(NodeServer):
    """Keeps nodes and the Lease; an apply to another version than the node's is refused."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.lose_answers = False
        for name in names:
            self.nodes[name] = {"metadata": {"name": name, "uid": name}, "status": {}}
            self.touch(name)

    def write(self, name: str, body: Any) -> dict[str, Any]:
        thing = self.current(name, body)
        thing["status"] = body.get("status", {})
        ours = {"manager": "spazio", "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": {}}}
        thing["metadata"]["managedFields"] = [ours] if "status" in body else []
        self.touch(name)
        if self.lose_answers:
            raise answer.Away("nothing has come in time")
        return copy.deepcopy(thing)

    @property
    def lent(self) -> dict[str, str]:
        amounts = {name: thing["status"].get("allocatable", {}).get(CPU) for name, thing in self.nodes.items()}
        return {name: amount for name, amount in amounts.items() if amount is not None}


def annotated(server: Server, name: str, text: str) -> None:
    server.nodes[name]["metadata"]["annotations"] = {node.STRATEGY: text}
    server.touch(name)


class Sink:
    """The part, looked at by the tests; the watch of nodes is current at each look."""

    def __init__(self, server: Server, **output: Any) -> None:
        self.server, self.now, self.health = server, START, Health()
        chosen = Output.model_validate({"mid": True, "mid_nodes": ""} | output)
        granted = access(server, chosen, self.health, lambda: self.now)
        self.nodes, self.latest, self.lease, self.part = granted.nodes, granted.latest, granted.lease, Mid(granted)
        self.writer = Writer("mid", self.health, Pace(1e6, 1e-3))

    async def look(self, **cores: float) -> dict[str, str]:
        """Look once while these are the predictions; return what is lent then, in millicores.

        The other formula lends a core more, and each node has ten.
        """
        for name, amount in cores.items():
            mid = {"reclaim": Resources(cpu=amount, memory=1e9), "mixed": Resources(cpu=amount + 1, memory=2e9)}
            whole, at_us = Resources(cpu=10.0, memory=8e9), round(self.now * 1e6)
            self.latest.hear(prediction(node=name, at_us=at_us, formula="reclaim", mid=mid, capacity=whole))
        self.follow()
        await self.part.refresh(self.writer)
        return self.server.lent

    def follow(self) -> None:
        for thing in self.server.nodes.values():
            self.nodes.put(copy.deepcopy(thing))


async def test_the_end_takes_everything_back_also_from_nodes_that_have_changed_or_are_gone() -> None:
    server = Server("n1", "n2", "n3")
    sink = Sink(server)
    assert await sink.look(n1=1.0, n2=2.0, n3=3.0) == {"n1": "1000", "n2": "2000", "n3": "3000"}
    server.touch("n1")
    del server.nodes["n3"]
    await sink.part.end()
    assert server.lent == {}


async def test_the_end_takes_back_what_was_written_without_an_answer() -> None:
    server = Server("n1")
    sink = Sink(server)
    server.lose_answers = True
    assert await sink.look(n1=1.0) == {"n1": "1000"}
    server.lose_answers = False
    await sink.part.end()
    assert server.lent == {}


async def test_a_write_that_arrives_after_the_end_is_refused() -> None:
    server = Server("n1")
    sink = Sink(server)
    assert await sink.look(n1=1.0) == {"n1": "1000"}
    sink.follow()
    late = sink.nodes.get("n1")
    assert late is not None
    await sink.part.end()
    with pytest.raises(answer.Conflict):
        await sink.part._send("n1", late, (2000, 1), force=False)
    assert server.lent == {}


async def test_only_the_holder_of_the_lease_lends_and_takes_back() -> None:
    server = Server("n1")
    first, other = Sink(server), Sink(server)
    assert await first.look(n1=1.0) == {"n1": "1000"}
    assert await other.look(n1=2.0) == {"n1": "1000"}
    await other.part.end()
    assert server.lent == {"n1": "1000"}
    await first.lease.release()
    assert await Sink(server).look(n1=2.0) == {"n1": "2000"}
    # The one that has lost it writes no more, at its end neither.
    assert await first.look(n1=3.0) == {"n1": "2000"}
    await first.part.end()
    assert server.lent == {"n1": "2000"}


async def test_a_new_machine_under_the_name_of_another_lends_nothing_that_was_predicted_for_that_one() -> None:
    server = Server("n1")
    sink = Sink(server)
    assert await sink.look(n1=40.0) == {"n1": "40000"}
    created = datetime.fromtimestamp(START + 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    server.nodes["n1"] = {"metadata": {"name": "n1", "uid": "other", "creationTimestamp": created}, "status": {}}
    server.touch("n1")
    sink.now += 65
    assert await sink.look() == {}
    assert await sink.look(n1=1.0) == {"n1": "1000"}


async def test_switched_off_it_takes_back_what_is_left_and_else_needs_no_lease() -> None:
    server = Server("n1")
    first, off = Sink(server), Sink(server, mid=False)
    await first.look(n1=1.0)
    await first.lease.release()
    assert await off.look(n1=1.0) == {}
    server.lease = {}
    assert await off.look(n1=1.0) == {}
    assert server.lease == {}


async def test_who_may_not_have_the_lease_learns_which_manifest_gives_the_right() -> None:
    server = Server("n1")
    sink = Sink(server)
    send = server.send

    async def refused(method: str, path: str, body: Any = None, **given: Any) -> dict[str, Any]:
        if "leases" in path:
            raise answer.Forbidden("verb get on leases")
        return await send(method, path, body, **given)

    server.send = refused  # type: ignore[method-assign]
    assert await sink.look(n1=1.0) == {}
    assert "deploy/kubernetes/rbac.yaml" in sink.health.problems["kubernetes lease"]
    server.send = send  # type: ignore[method-assign]
    assert await sink.look(n1=1.0) == {"n1": "1000"}
    assert sink.health.problems == {}


@pytest.mark.parametrize(
    ("text", "lent"),
    [
        ("", "4000"),
        ("formula=mixed", "5000"),
        ("cpu=0.25", "2500"),
        ("cpu=0.5,memory=0", "4000"),
        ("formula=mixed, cpu=0.45", "4500"),
        ("cpu=0", "0"),
        ("formula=shipped", "0"),  # the prediction lacks it
        # What cannot be read lends nothing.
        ("formula=other", "0"),
        ("cpu=1.5", "0"),
        ("cpu=half", "0"),
        ("cpu=nan", "0"),
        ("cores=3", "0"),
        ("mixed", "0"),
    ],
)
async def test_a_node_chooses_by_its_annotation_how_it_lends(text: str, lent: str) -> None:
    server = Server("n1")
    sink = Sink(server)
    assert await sink.look(n1=4.0) == {"n1": "4000"}
    annotated(server, "n1", text)
    assert await sink.look(n1=4.0) == {"n1": lent}


async def test_memory_has_a_share_of_its_own() -> None:
    server = Server("n1")
    annotated(server, "n1", "memory=0.1")
    assert await Sink(server).look(n1=4.0) == {"n1": "4000"}
    assert server.nodes["n1"]["status"]["allocatable"][MEMORY] == "800000000"


def test_a_node_metric_says_what_its_node_lends_and_what_production_needs_at_most() -> None:
    formulas = {"reclaim": Resources(cpu=4.0, memory=1 << 30), "mixed": Resources(cpu=5.0, memory=1 << 31)}
    peaks = {"node": {"max": Resources(cpu=9.0, memory=1e9)}, "prod": {"max": Resources(cpu=3.0, memory=1 << 30)}}
    whole = Resources(cpu=10.0, memory=8 * (1 << 30))
    message = prediction(formula="reclaim", mid=formulas, peaks=peaks, model="max", capacity=whole)
    status = metric._predicted(message, node.strategy("formula=mixed,cpu=0.2"))
    assert (status["formula"], status["mid"]) == ("mixed", {"cpu": "2000m", "memory": "2048Mi"})
    assert status["prodPeak"] == {"cpu": "3000m", "memory": "1024Mi"}
