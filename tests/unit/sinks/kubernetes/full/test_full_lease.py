"""Marks of full nodes when the sink ends, changes its holder, may not write, or waits for nodes."""

from typing import Any

from kube import answer
from sinks.kubernetes.full import Pause
from tests.unit.sinks.kubernetes.full.server import START, Server, Sink


async def test_the_end_removes_every_mark() -> None:
    server = Server()
    server.nodes["n1"]["spec"]["taints"] = [{"key": "theirs", "effect": "NoSchedule"}]
    sink = Sink(server)
    await sink.through(0, 15, "n1", "n2", stranded=("n1", "n3"))
    assert (server.full, server.kept) == (["n1", "n2"], ["n1", "n3"])
    # One has changed since, which nobody has reported, others change at that moment, and one is deleted.
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
    first, other = Sink(server), Sink(server)
    await first.through(0, 1)
    assert await other.through(0, 20, "n1") == []
    assert await first.through(0, 20, "n1") == ["n1"]
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


async def test_who_may_not_patch_learns_which_manifest_gives_the_right() -> None:
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
