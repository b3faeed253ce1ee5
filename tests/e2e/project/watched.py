"""A running pipeline beside the Prometheus that reads it, and how tests act on it."""

import asyncio
import contextlib
import http.client
import json
import socket
import time
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import nats
from nats.aio.client import Client

from schemas import codec, role
from schemas.messages.base import Message
from tests.e2e.pipeline import Up
from tests.support.extender.placement import asked
from tests.support.server.prometheus import Prometheus

Value = TypeVar("Value")


class Watched(NamedTuple):
    """A pipeline and the Prometheus that reads it."""

    pipeline: Up
    server: Prometheus


_SIMULATED = ("sim-00000", "sim-00001")  # on which there is room, however busy this machine is


def question(*nodes: str, name: str = "p", namespace: str = "default", **fields: str) -> bytes:
    """Return what a scheduler asks of a pod, which has these nodes; default: this machine."""
    pod = asked(name, **fields)
    pod["metadata"]["namespace"] = namespace
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": nodes or [socket.gethostname()]}).encode()


def ask_extender(pipeline: Up, *nodes: str, **fields: str) -> None:
    """Ask where a pod may go; see `question`."""
    body = question(*nodes, **fields)
    for verb in ("filter", "prioritize"):
        request = urllib.request.Request(f"{pipeline.addresses['extender']}/{verb}", body)
        urllib.request.urlopen(request, timeout=10).close()


def ask_in_vain(pipeline: Up) -> None:
    """Ask where a pod may go, and whether the extender is healthy, of one that the server does not answer."""
    ask_extender(pipeline, *_SIMULATED)
    with contextlib.suppress(OSError):  # it says that it is not, or nothing
        urllib.request.urlopen(f"{pipeline.addresses['extender'].rpartition('/')[0]}/healthz", timeout=10).close()


def ask_slowly(pipeline: Up, seconds: float) -> None:
    """Ask where a pod may go, and send the question only so long after its header."""
    address, body = urllib.parse.urlsplit(pipeline.addresses["extender"]), question()
    connection = http.client.HTTPConnection(address.netloc, timeout=10)
    connection.putrequest("POST", f"{address.path}/filter")
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders()
    time.sleep(seconds)
    connection.send(body)
    assert connection.getresponse().status == 200
    connection.close()


def acting_as(pipeline: Up, name: str, work: Callable[[Client], Awaitable[Value]]) -> Value:
    """Do something with the credential of a role."""

    async def act() -> Value:
        credential = pipeline.folder / "credentials" / "roles" / f"{name}.creds"
        url = pipeline.addresses["nats"]
        client = await nats.connect(
            url, user_credentials=str(credential), inbox_prefix=f"{role.INBOX}_{name}", allow_reconnect=False
        )
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
