"""The Lease in virtual time: one holder at a time, whichever dies, and whatever the API server answers."""

import asyncio
import contextlib
import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kube import answer
from kube.api import Api
from schemas.sections.measurement import Kube
from sinks.kubernetes.writing.lease import Lease
from tests.support import virtual

PATH = "/apis/coordination.k8s.io/v1/namespaces/spazio/leases"


class Server(Api):
    """Keeps one Lease, as an API server does: what replaces it names the version that it had."""

    def __init__(self) -> None:
        super().__init__(Kube())
        self.lease: dict[str, Any] | None = None
        self.sent: list[str] = []
        self.away = False
        self.before_write: Callable[[], Awaitable[object]] | None = None

    async def send(self, method: str, path: str, body: Any = None, **_: Any) -> dict[str, Any]:
        self.sent.append(method)
        if self.away:
            raise answer.Away("away")
        if method == "GET":
            assert path == f"{PATH}/spazio-full"
            if self.lease is None:
                raise answer.Missing("none")
            return copy.deepcopy(self.lease)
        if self.before_write is not None:
            before, self.before_write = self.before_write, None
            await before()
        version = 0 if self.lease is None else int(self.lease["metadata"]["resourceVersion"])
        if method == "POST":
            assert path == PATH
            if self.lease is not None:
                raise answer.Conflict("exists")
        elif body["metadata"]["resourceVersion"] != str(version):
            raise answer.Conflict("changed")
        self.lease = copy.deepcopy(body)
        self.lease["metadata"]["resourceVersion"] = str(version + 1)
        return copy.deepcopy(self.lease)

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec


def lease(server: Server) -> Lease:
    return Lease(server, "spazio/spazio-full", 15)


def test_one_process_holds_it_and_renews_it_every_five_seconds() -> None:
    async def scenario() -> None:
        server = Server()
        first, other = lease(server), lease(server)
        for second in range(60):
            assert await first.hold()
            assert not await other.hold(), second
            await asyncio.sleep(1)
        assert server.sent.count("PUT") == 11
        assert server.spec["leaseTransitions"] == 1

    virtual.run(scenario())


def test_another_takes_over_when_the_holder_is_dead_for_as_long_as_it_lasts() -> None:
    async def scenario() -> None:
        server = Server()
        first, other = lease(server), lease(server)
        assert await first.hold()
        began = asyncio.get_running_loop().time()
        while not await other.hold():  # noqa: ASYNC110 # the time is virtual
            await asyncio.sleep(1)
        # The holder has stopped to write before.
        assert not first.held
        assert 15 <= asyncio.get_running_loop().time() - began <= 15 + 3 + 1
        assert not await first.hold()

    virtual.run(scenario())


def test_one_that_is_given_up_is_free_at_once() -> None:
    async def scenario() -> None:
        server = Server()
        first, other = lease(server), lease(server)
        assert await first.hold()
        await first.release()
        assert not first.held
        assert await other.hold()
        # A release by somebody who does not hold it changes nothing.
        await first.release()
        assert server.spec["holderIdentity"] != ""
        assert other.held

    virtual.run(scenario())


def test_a_holder_that_reaches_no_server_stops_when_it_expires_and_not_before() -> None:
    async def scenario() -> None:
        server = Server()
        first = lease(server)
        assert await first.hold()
        server.away = True
        held = []
        for _ in range(20):
            await asyncio.sleep(1)
            if not first.held:
                break
            held.append(first.held)
            with contextlib.suppress(answer.Away):
                await first.hold()
        assert len(held) == 14
        server.away = False
        assert await first.hold()

    virtual.run(scenario())


def test_of_two_that_ask_at_the_same_moment_one_gets_it() -> None:
    async def scenario() -> None:
        server = Server()
        first, other = lease(server), lease(server)
        server.before_write = other.hold
        assert not await first.hold()
        assert other.held
        assert not first.held

    virtual.run(scenario())


def test_what_the_server_refuses_is_raised() -> None:
    async def scenario() -> None:
        server = Server()
        server.away = True
        with pytest.raises(answer.Away):
            await lease(server).hold()

    virtual.run(scenario())
