"""Marks of a cluster in virtual time: which nodes get the taint, when it goes, and what an API server is asked for."""

import pytest

from tests.unit.sinks.kubernetes.full.server import NAMES, START, Server, Sink


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
