"""Marks of a cluster in virtual time: which nodes get the taint, when it goes, and what an API server is asked for."""

import copy
from typing import Any

import pytest

from bus.health import Health
from kube import answer
from kube.api import Api
from schemas.messages.placement import Shortage
from schemas.sections.measurement import Kube
from schemas.sections.output import Output
from sinks.kubernetes import node
from sinks.kubernetes.full import Full, Pause
from sinks.kubernetes.latest import Latest
from sinks.kubernetes.node import Node
from sinks.kubernetes.objects import Objects
from sinks.kubernetes.writing.holder import Holder
from sinks.kubernetes.writing.lease import Lease
from sinks.kubernetes.writing.pace import Pace
from sinks.kubernetes.writing.writer import Writer

START = 1_800_000_000.0
NAMES = [f"n{number}" for number in range(10)]
ON = {"full": True, "keep": True, "full_seconds": 10}


class Server(Api):
    """Keeps nodes and the Lease; a merge patch of another version than the node's is refused."""

    def __init__(self, *names: str) -> None:
        super().__init__(Kube())
        self.version = 0
        self.nodes: dict[str, dict[str, Any]] = {}
        for name in names or NAMES:
            self.add(name)
        self.lease: dict[str, Any] = {}
        self.patched: list[str] = []
        self.races = 0
        self.forbidden = False

    def add(self, name: str) -> None:
        self.version += 1
        metadata = {"name": name, "uid": f"u{self.version}", "resourceVersion": str(self.version)}
        self.nodes[name] = {"metadata": metadata, "spec": {}}

    def touch(self, name: str) -> None:
        self.version += 1
        self.nodes[name]["metadata"]["resourceVersion"] = str(self.version)

    async def send(self, method: str, path: str, body: Any = None, *, query: Any = None, **_: Any) -> dict[str, Any]:
        if "leases" in path:
            if method == "GET" and not self.lease:
                raise answer.Missing("none")
            if method != "GET":
                self.lease = body | {"metadata": body["metadata"] | {"resourceVersion": "1"}}
            return self.lease
        if method == "GET":
            name = query["fieldSelector"].removeprefix("metadata.name=")
            return {"items": [copy.deepcopy(self.nodes[name])] if name in self.nodes else []}
        return self._patch(path.rpartition("/")[2], body)

    def _patch(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.forbidden:
            raise answer.Forbidden("verb patch on nodes")
        if name not in self.nodes:
            raise answer.Missing("none")
        thing = self.nodes[name]
        if self.races:
            self.races -= 1
            self.touch(name)
        if body["metadata"]["resourceVersion"] != thing["metadata"]["resourceVersion"]:
            raise answer.Conflict("changed")
        self.patched.append(name)
        if "spec" in body:
            thing["spec"] = {"taints": body["spec"]["taints"] or []}
        notes = (thing["metadata"].get("annotations") or {}) | (body["metadata"].get("annotations") or {})
        thing["metadata"]["annotations"] = {key: value for key, value in notes.items() if value is not None}
        self.touch(name)
        return copy.deepcopy(thing)

    @property
    def full(self) -> list[str]:
        taints = {name: thing["spec"].get("taints") or () for name, thing in self.nodes.items()}
        return sorted(name for name, each in taints.items() if any(taint["key"] == "spazio.io/full" for taint in each))

    @property
    def kept(self) -> list[str]:
        notes = {name: thing["metadata"].get("annotations") or {} for name, thing in self.nodes.items()}
        return sorted(name for name, each in notes.items() if each.get("karpenter.sh/do-not-disrupt") == "true")


class Sink:
    """The part, looked at by whoever tests; the watch of nodes is current at each look."""

    def __init__(self, server: Server, **output: Any) -> None:
        self.server, self.now, self.health = server, START, Health()
        self.output = Output.model_validate(ON | output)
        self.latest = Latest()
        self.latest.current.set()
        self.nodes: Objects[Node] = Objects("nodes", node.reader(self.output))
        self.nodes.whole = True
        lease = Lease(server, self.output.full_lease, self.output.full_lease_seconds)
        self.lease = Holder(lease, self.health)
        self.part = Full(server, self.nodes, self.latest, self.output, self.lease, lambda: self.now)
        self.writer = Writer("full", self.health, Pace(1e6, 1e-3))
        self.follow()

    def follow(self) -> None:
        for key, _ in list(self.nodes):
            if key not in self.server.nodes:
                self.nodes.drop(key)
        for thing in self.server.nodes.values():
            self.nodes.put(copy.deepcopy(thing))

    def hear(self, *full: str, stranded: tuple[str, ...] = (), replica: str = "a", age: float = 0) -> None:
        at_us = round((self.now - age) * 1e6)
        self.latest.hear(
            Shortage(
                replica=replica, at_us=at_us, until_us=at_us + 10_000_000, pods=len(full), waiting=[], full=list(full),
                stranded=list(stranded),
            )
        )  # fmt: skip

    async def look(self, at: float) -> list[str]:
        """Return the nodes that have the taint after a look."""
        self.now = START + at
        self.follow()
        await self.part.refresh(self.writer)
        return self.server.full

    async def through(self, begin: int, end: int, *full: str, **said: Any) -> list[str]:
        """Look once a second while extenders say this; return the nodes that have the taint then."""
        for at in range(begin, end):
            self.now = START + at
            self.hear(*full, **said)
            await self.look(at)
        return self.server.full


async def test_a_node_gets_the_taint_once_it_has_lacked_room_for_so_long_and_loses_it_likewise() -> None:
    sink = Sink(Server())
    assert await sink.through(0, 10, "n1", "n2", "gone") == []
    assert await sink.through(10, 30, "n1", "n2", "gone") == ["n1", "n2"]
    assert await sink.through(30, 40, "n2") == ["n1", "n2"]
    assert await sink.through(40, 41, "n2") == ["n2"]
    assert await sink.through(41, 52) == []
    assert sink.server.patched == ["n1", "n2", "n1", "n2"]
    assert sink.health.problems == {}


async def test_nodes_that_no_extender_speaks_of_any_more_lose_it() -> None:
    sink = Sink(Server())
    await sink.through(0, 20, "n1")
    # Each summary is valid for ten seconds, and so is its end.
    assert [await sink.look(at) for at in (28, 29, 38, 39)] == [["n1"]] * 3 + [[]]


async def test_a_summary_of_a_wrong_clock_says_nothing() -> None:
    sink = Sink(Server())
    sink.hear("n1", age=-3600)
    assert [await sink.look(at) for at in (0, 20, 3600 - 11)] == [[]] * 3


async def test_what_several_extenders_say_counts_together() -> None:
    sink = Sink(Server())
    for at in range(12):
        sink.now = START + at
        sink.hear("n1", replica="a")
        sink.hear("n2", replica="b")
        await sink.look(at)
    assert sink.server.full == ["n1", "n2"]


@pytest.mark.parametrize(("share", "most"), [(1, 10), (0.35, 3), (0.3, 3), (0.05, 0), (0, 0)])
async def test_no_more_nodes_have_the_taint_than_the_share_allows(share: float, most: int) -> None:
    sink = Sink(Server(), full_share=share)
    first = await sink.through(0, 20, *NAMES[5:])
    assert first == NAMES[5:][:most]
    # Those that have it keep it, and others take the place of those that lose it.
    both = await sink.through(20, 40, *NAMES)
    assert len(both) == most
    assert set(first) <= set(both)
    assert await sink.through(40, 60, *NAMES[:5]) == NAMES[:5][:most]


async def test_annotations_follow_what_is_stranded_and_are_not_limited() -> None:
    sink = Sink(Server(), full_share=0.1)
    await sink.through(0, 12, stranded=tuple(NAMES))
    assert (sink.server.kept, sink.server.full) == (NAMES, [])
    await sink.through(12, 30, stranded=("n3",))
    assert sink.server.kept == ["n3"]


@pytest.mark.parametrize(("output", "marks"), [({"full": False}, ([], ["n2"])), ({"keep": False}, (["n1"], []))])
async def test_each_of_both_is_switched_on_alone(output: dict[str, bool], marks: tuple[list[str], list[str]]) -> None:
    sink = Sink(Server(), **output)
    await sink.through(0, 15, "n1", stranded=("n2",))
    assert (sink.server.full, sink.server.kept) == marks


async def test_switched_off_it_removes_what_is_left_and_else_asks_for_nothing() -> None:
    server = Server()
    sink = Sink(server)
    await sink.through(0, 15, "n1", stranded=("n2",))
    await sink.lease.release()
    off = Sink(server, full=False, keep=False)
    await off.through(100, 101, "n1", "n2", stranded=("n2",))
    assert (server.full, server.kept) == ([], [])
    server.lease = {}
    await off.through(101, 120, "n1", "n2")
    assert server.lease == {}


async def test_the_end_removes_every_mark() -> None:
    server = Server()
    server.nodes["n1"]["spec"]["taints"] = [{"key": "theirs", "effect": "NoSchedule"}]
    sink = Sink(server)
    await sink.through(0, 15, "n1", "n2", stranded=("n1", "n3"))
    assert (server.full, server.kept) == (["n1", "n2"], ["n1", "n3"])
    # One has changed since, which nobody has told, others change at that moment, and one is deleted.
    server.touch("n1")
    server.races = 3
    del server.nodes["n3"]
    await sink.part.end()
    assert (server.full, server.kept) == ([], [])
    assert server.nodes["n1"]["spec"]["taints"] == [{"key": "theirs", "effect": "NoSchedule"}]


async def test_the_end_removes_a_mark_whose_answer_was_lost() -> None:
    server = Server()
    sink = Sink(server)
    send = server.send

    async def lost(method: str, path: str, body: Any = None, **given: Any) -> dict[str, Any]:
        result = await send(method, path, body, **given)
        if method == "PATCH":
            raise answer.Away("nothing has come in time")
        return result

    server.send = lost  # type: ignore[method-assign]
    await sink.look(0)
    sink.hear("n1")
    await sink.look(0)
    sink.hear("n1")
    sink.now = START + 12
    sink.hear("n1")
    await sink.part.refresh(sink.writer)
    assert server.full == ["n1"]
    server.send = send  # type: ignore[method-assign]
    await sink.part.end()
    assert server.full == []


async def test_who_does_not_hold_the_lease_writes_nothing_and_removes_nothing_at_its_end() -> None:
    server = Server()
    one, other = Sink(server), Sink(server)
    await one.through(0, 1)
    assert await other.through(0, 20, "n1") == []
    assert await one.through(0, 20, "n1") == ["n1"]
    await other.part.end()
    assert server.full == ["n1"]


async def test_the_next_holder_removes_what_a_dead_one_left_and_keeps_what_is_still_due() -> None:
    server = Server()
    dead = Sink(server)
    await dead.through(0, 15, "n1", "n2", stranded=("n1", "n2"))
    server.lease = {}  # it has expired
    heir = Sink(server)
    assert await heir.through(60, 61, "n2", stranded=("n2",)) == ["n2"]
    assert server.kept == ["n2"]
    assert server.patched.count("n2") == 1


async def test_the_taints_pause_when_no_node_comes_and_begin_again_after_it() -> None:
    sink = Sink(Server(), full_hold_seconds=100)
    assert await sink.through(0, 110, "n1", "n2") == ["n1", "n2"]
    assert await sink.through(110, 111, "n1", "n2") == []
    assert await sink.through(111, 210, "n1", "n2") == []
    assert await sink.through(210, 211, "n1", "n2") == ["n1", "n2"]
    # A node that comes is a reason to go on.
    sink.server.add("new")
    assert await sink.through(211, 300, "n1", "n2") == ["n1", "n2"]
    sink.server.add("newer")
    assert await sink.through(300, 399, "n1", "n2") == ["n1", "n2"]
    assert await sink.through(399, 401, "n1", "n2") == []


def test_without_a_taint_nothing_pauses_however_long_it_takes() -> None:
    pause = Pause(100)
    assert not any(pause.active({"u"}, [None], at) for at in range(0, 1000, 50))
    assert not pause.active({"u"}, [1000.0], 1050)
    assert pause.active({"u"}, [1000.0], 1100)


async def test_who_may_not_patch_is_told_which_manifest_gives_the_right() -> None:
    sink = Sink(Server())
    sink.server.forbidden = True
    await sink.through(0, 12, "n1")
    assert "optional/rbac-full.yaml" in sink.health.problems["kubernetes write full"]
    sink.server.forbidden = False
    await sink.through(12, 14, "n1")
    assert (sink.server.full, sink.health.problems) == (["n1"], {})


async def test_nothing_is_done_before_everything_is_known() -> None:
    sink = Sink(Server())
    sink.nodes.whole = False
    assert await sink.through(0, 20, "n1") == []
    sink.nodes.whole = True
    sink.latest.current.clear()
    assert await sink.through(20, 40, "n1") == []
    assert sink.server.lease == {}
