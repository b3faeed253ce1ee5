"""A running pipeline beside the Prometheus that reads it, and how tests act on it."""

import asyncio
import json
import os
import signal
import socket
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import nats
from nats.aio.client import Client

from schemas import codec, role
from schemas.messages.base import Message
from tests.e2e.pipeline import Up
from tests.support.extender.placement import asked
from tests.support.server.prometheus import Prometheus

Value = TypeVar("Value")

LASTING = "SpazioNodeSilent"  # a node that was there is silent for as long as it stays away


class Watched(NamedTuple):
    """A pipeline and the Prometheus that reads it."""

    pipeline: Up
    server: Prometheus

    def fires(self, meanwhile: Callable[[], None] = lambda: None, **summaries: str) -> None:
        """Wait until each of some alerts has fired, with a summary that begins so; something goes on meanwhile."""
        left = dict(summaries)

        def all_have() -> bool:
            meanwhile()
            for name, summary in self.server.firing():
                if name in left and summary.startswith(left[name]):
                    del left[name]
            return not left

        deadline = time.monotonic() + 60
        while not all_have() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not left, left

    def clears(self, *, besides: str = LASTING) -> None:
        """Wait until nothing else fires; what fell behind has time to be well again."""
        deadline = time.monotonic() + 90
        while (left := [each for each in self.server.firing() if each[0] != besides]) and time.monotonic() < deadline:
            time.sleep(0.5)
        assert not left, left


def ask_extender(pipeline: Up, node: str = "", name: str = "p", namespace: str = "default") -> None:
    """Ask where a pod may go, which has this node alone; default: this machine."""
    pod = asked(name)
    pod["metadata"]["namespace"] = namespace
    question = {"Pod": pod, "Nodes": None, "NodeNames": [node or socket.gethostname()]}
    for verb in ("filter", "prioritize"):
        request = urllib.request.Request(f"{pipeline.addresses['extender']}/{verb}", json.dumps(question).encode())
        urllib.request.urlopen(request, timeout=10).close()


def acting_as(pipeline: Up, name: str, work: Callable[[Client], Awaitable[Value]]) -> Value:
    """Do something with the credential of a role."""

    async def act() -> Value:
        credential = pipeline.folder / "credentials" / "roles" / f"{name}.creds"
        url = pipeline.addresses["nats"]
        client = await nats.connect(url, user_credentials=str(credential), inbox_prefix=f"{role.INBOX}_{name}")
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(act())


def publish_as(pipeline: Up, name: str, *messages: tuple[str, Message]) -> None:
    """Publish with the credential of a role."""

    async def publish(client: Client) -> None:
        for subject, message in messages:
            await client.jetstream().publish(subject, codec.encode(message))

    acting_as(pipeline, name, publish)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process for the length of a block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
