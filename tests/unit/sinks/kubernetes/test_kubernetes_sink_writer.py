"""Writes: every object has its chance, a server that is away is not asked in vain, and an outage is logged once."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client import REGISTRY

from bus.health import Health
from kube import answer
from kube.answer import Trouble
from sinks.kubernetes.writing.pace import Pace
from sinks.kubernetes.writing.writer import Write, Writer


class Server:
    """Answers each key with an object, or with the trouble that it is given."""

    def __init__(self) -> None:
        self.troubles: dict[str, Trouble] = {}
        self.asked: list[str] = []
        self.done: list[str] = []
        self.gone: list[str] = []
        self.health = Health()
        self.pace = Pace(1e6, 1e-3)
        self.writer = Writer("mid", self.health, self.pace)
        self.slow, self.busy, self.most = False, 0, 0
        self.rates: list[float] = []

    async def _send(self, key: str) -> Mapping[str, Any]:
        self.asked.append(key)
        self.rates.append(self.pace.per_second)
        self.busy += 1
        self.most = max(self.most, self.busy)
        if self.slow:
            await asyncio.sleep(0.02)
        self.busy -= 1
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


def outcomes(name: str) -> float:
    return REGISTRY.get_sample_value("spazio_kube_writes_total", {"what": "mid", "outcome": name}) or 0.0


async def test_one_object_that_is_refused_hinders_no_other() -> None:
    server = Server()
    server.troubles["b"] = answer.Invalid("b is invalid")
    assert sorted(await server.write("a", "b", "c")) == ["a", "b", "c"]
    assert sorted(server.done) == ["a", "c"]
    assert server.problem == "b is invalid"
    del server.troubles["b"]
    await server.write("b")
    assert server.problem == ""


async def test_a_server_that_is_away_is_not_asked_for_the_rest() -> None:
    server = Server()
    server.troubles = {key: answer.Away("away") for key in "abcdef"}
    assert await server.write(*"abcdef") == ["a", "b", "c"]
    server = Server()
    server.troubles["a"] = answer.Unknown("who are you?")
    assert await server.write("a", "b", "c") == ["a"]
    server = Server()
    server.troubles = {key: answer.Forbidden("no") for key in "abcdef"}
    assert await server.write(*"abcdef") == ["a", "b", "c"]


async def test_a_server_that_refuses_some_for_its_load_gets_the_others_in_the_same_round() -> None:
    server, keys = Server(), [f"n{number:04}" for number in range(300)]
    server.troubles = {key: answer.Away("too many requests", 0.0) for key in keys[7::50]}
    assert sorted(await server.write(*keys)) == keys
    assert len(server.done) == 294
    server.troubles = {}
    assert await server.write(*keys[7::50]) == keys[7::50]
    assert server.problem == ""


async def test_objects_that_others_hold_do_not_keep_the_rest_from_their_turn() -> None:
    server = Server()
    for key in "abcd":
        server.troubles[key] = answer.Conflict("koordinator has it", managers=("koordinator",))
    assert await server.write(*"abcdefg") == list("abcdefg")
    server.troubles |= {key: answer.Forbidden("no") for key in "abcd"}
    assert await server.write(*"abcdefg") == [*"efg", "a", "b", "c"]
    assert server.done == [*"efg", *"efg"]


async def test_an_outage_is_reported_once_whichever_objects_it_meets(caplog: pytest.LogCaptureFixture) -> None:
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
    messages = [record.message for record in caplog.records]
    assert messages == ["service.degraded", "service.degraded", "service.recovered"]


async def test_what_need_not_be_written_any_more_fails_no_more() -> None:
    server = Server()
    server.troubles["a"] = answer.Invalid("no")
    await server.write("a")
    await server.write()
    assert server.problem == ""


async def test_an_object_that_is_gone_or_that_somebody_else_has_just_changed_is_no_trouble() -> None:
    server = Server()
    server.troubles = {"a": answer.Missing("gone"), "b": answer.Conflict("changed")}
    before = [outcomes(each) for each in ("gone", "raced", "missing", "conflict")]
    await server.write("a", "b", "c")
    after = [outcomes(each) for each in ("gone", "raced", "missing", "conflict")]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1, 0, 0], "an alert counts the others"
    assert (server.gone, server.done, server.problem, server.writer.raced) == (["a"], ["c"], "", True)
    await server.write("c")
    assert not server.writer.raced
    server.troubles = {"a": answer.Unserved("no such kind"), "b": answer.Conflict("theirs", managers=("koord",))}
    await server.write("a", "b", "c")
    assert server.gone == ["a"]
    assert server.problem == "no such kind"


async def test_turns_are_spread_evenly_however_many_ask() -> None:
    pace, loop = Pace(100, 0.01), asyncio.get_running_loop()
    pace.plan("mid", 21)
    began = loop.time()
    await asyncio.gather(*(pace.turn() for _ in range(21)))
    assert loop.time() - began >= 0.19


async def test_the_rate_is_what_waits_needs_between_twenty_and_the_limit() -> None:
    """16,000 nodes with two objects each, within 240 of 300 s."""
    pace = Pace(200, 240)
    assert pace.per_second == 20
    pace.plan("mid", 16_000)
    pace.plan("metric", 16_000)
    assert pace.per_second == pytest.approx(32_000 / 240)
    pace.plan("mid", 100_000)
    assert pace.per_second == 200
    assert Pace(5, 240).per_second == 5


async def test_an_overloaded_server_is_written_to_at_half_the_rate_after_the_pause_it_asks_for() -> None:
    pace, loop = Pace(1000, 0.01), asyncio.get_running_loop()
    pace.plan("mid", 100)
    await pace.turn()
    pace.overloaded(0.2)
    pace.overloaded(None)
    assert pace.per_second == pytest.approx(250)
    began = loop.time()
    await pace.turn()
    assert loop.time() - began >= 0.19
    await asyncio.sleep(0.3)
    await pace.turn()
    assert 260 < pace.per_second < 1000  # it recovers by a tenth each second


async def test_a_server_that_has_too_much_to_do_is_given_time() -> None:
    """Two objects wait and should be written within a millisecond: at half the rate, 1000 a second."""
    server = Server()
    server.troubles["a"] = answer.Away("too many requests", 0.0)
    await server.write("b", "a")
    assert server.pace.per_second == 1000
    server.troubles["a"] = answer.Invalid("no")
    await server.write("a", "b")
    assert server.pace.per_second > 500, "what is wrong with one object is no overload"


async def test_the_rate_does_not_fall_while_a_round_goes_on() -> None:
    server = Server()
    server.pace = Pace(1e6, 0.1)
    server.writer = Writer("mid", server.health, server.pace)
    await server.write(*(f"n{number}" for number in range(50)))
    assert server.rates == [500] * 50


async def test_writes_that_succeed_are_sent_together() -> None:
    server = Server()
    server.slow = True
    keys = [f"n{number}" for number in range(80)]
    assert sorted(await server.write(*keys)) == sorted(keys)
    assert server.done == keys
    assert server.most > 16


async def test_what_waits_and_for_how_long_is_shown() -> None:
    def shown(name: str) -> float | None:
        return REGISTRY.get_sample_value(f"spazio_kube_{name}", {"what": "mid"})

    server = Server()
    server.troubles = {"b": answer.Away("away"), "c": answer.Away("away")}
    await server.write("a", "b", "c")
    await asyncio.sleep(0.05)
    await server.write("b", "c")
    assert shown("writes_waiting") == 2
    assert 0.05 <= (shown("write_lag_seconds") or 0) < 5
    server.troubles = {}
    await server.write("b", "c")
    assert (shown("writes_waiting"), shown("write_lag_seconds")) == (0, 0)
    server.troubles = {"d": answer.Away("away")}
    await server.write("d")
    await server.write()
    assert shown("writes_waiting") == 0, "it is not wanted any more"
