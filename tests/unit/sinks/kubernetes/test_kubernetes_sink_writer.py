"""Writes: every object has its chance, a server that is away is not asked in vain, and an outage is told once."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from bus.health import Health
from kube import answer
from kube.answer import Trouble
from sinks.kubernetes.writer import Pace, Write, Writer


class Server:
    """Answers each key with an object, or with the trouble that it is told."""

    def __init__(self) -> None:
        self.troubles: dict[str, Trouble] = {}
        self.asked: list[str] = []
        self.done: list[str] = []
        self.gone: list[str] = []
        self.health = Health()
        self.writer = Writer("mid", self.health, Pace(1e6))

    async def _send(self, key: str) -> Mapping[str, Any]:
        self.asked.append(key)
        if key in self.troubles:
            raise self.troubles[key]
        return {"metadata": {"name": key}}

    async def write(self, *keys: str) -> list[str]:
        """Return what was asked for."""
        self.asked = []
        writes = [Write(key, lambda key=key: self._send(key)) for key in keys]  # type: ignore[misc]
        await self.writer.write(writes, done=lambda key, _: self.done.append(key), gone=self.gone.append)
        return self.asked

    @property
    def problem(self) -> str:
        return self.health.problems.get("kubernetes write mid", "")


async def test_one_object_that_is_refused_hinders_no_other() -> None:
    server = Server()
    server.troubles["b"] = answer.Invalid("b is invalid")
    assert await server.write("a", "b", "c") == ["a", "b", "c"]
    assert server.done == ["a", "c"]
    assert server.problem == "b is invalid"
    del server.troubles["b"]
    await server.write("b")
    assert server.problem == ""


async def test_a_server_that_is_away_is_not_asked_for_the_rest() -> None:
    server = Server()
    server.troubles["a"] = answer.Away("away")
    assert await server.write("a", "b", "c") == ["a"]
    server.troubles = {key: answer.Forbidden("no") for key in "abcdef"}
    assert await server.write(*"abcdef") == ["a", "b", "c"]


async def test_objects_that_others_hold_do_not_keep_the_rest_from_their_turn() -> None:
    server = Server()
    for key in "abcd":
        server.troubles[key] = answer.Conflict("koordinator has it", managers=("koordinator",))
    assert await server.write(*"abcdefg") == list("abcdefg")
    server.troubles |= {key: answer.Forbidden("no") for key in "abcd"}
    assert await server.write(*"abcdefg") == [*"efg", "a", "b", "c"]
    assert server.done == [*"efg", *"efg"]


async def test_an_outage_is_told_once_whichever_objects_it_meets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = Server()
    for key in "abc":
        server.troubles = {key: answer.Away(f"{key} is away")}
        await server.write(*"abc"[ord(key) - ord("a") :])
    assert server.problem == "a is away"
    server.troubles = {"a": answer.Forbidden("a is forbidden")}
    await server.write("a")
    assert server.problem == "a is forbidden"
    server.troubles = {}
    await server.write("a")
    told = [record.message for record in caplog.records]
    assert told == ["service.degraded", "service.degraded", "service.recovered"]


async def test_what_need_not_be_written_any_more_fails_no_more() -> None:
    server = Server()
    server.troubles["a"] = answer.Invalid("no")
    await server.write("a")
    await server.write()
    assert server.problem == ""


async def test_an_object_that_is_gone_or_that_somebody_else_has_just_changed_is_no_trouble() -> None:
    server = Server()
    server.troubles = {"a": answer.Missing("gone"), "b": answer.Conflict("changed")}
    await server.write("a", "b", "c")
    assert (server.gone, server.done, server.problem, server.writer.raced) == (["a"], ["c"], "", True)
    await server.write("c")
    assert not server.writer.raced
    server.troubles = {"a": answer.Unserved("no such kind"), "b": answer.Conflict("theirs", managers=("koord",))}
    await server.write("a", "b", "c")
    assert server.gone == ["a"]
    assert server.problem == "no such kind"


async def test_turns_are_spread_evenly_however_many_ask() -> None:
    pace, loop = Pace(100), asyncio.get_running_loop()
    began = loop.time()
    await asyncio.gather(*(pace.turn() for _ in range(21)))
    assert loop.time() - began >= 0.19
