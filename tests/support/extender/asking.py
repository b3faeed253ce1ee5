"""An extender that decides by a simple rule, served over HTTP, clients that ask it, and keys for HTTPS."""

import asyncio
import io
import json
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from bus.health import Health
from schemas.sections.placement import Extender
from sinks.extender.web import server
from sinks.extender.web.selector import Filtered
from sinks.serving.connection import Limits

POD = {"metadata": {"name": "web", "uid": "u"}, "spec": {}}


class Rule:
    """Turns down nodes whose name ends in 0, and scores the others by their last digit.

    Attributes:
        bound: Pods that were bound, by UID.
        waiting: A pod named `waits` was asked about.
        gate: It is answered when this is set.
    """

    def __init__(self) -> None:
        self.bound: dict[str, str] = {}
        self.waiting, self.gate = asyncio.Event(), asyncio.Event()

    async def filter(self, pod: Mapping[str, Any], names: Sequence[str]) -> Filtered:
        if "metadata" not in pod:
            raise ValueError("the pod has no metadata")
        name = pod["metadata"].get("name")
        if name == "breaks":
            raise RuntimeError("broken on purpose")
        if name == "puzzles":
            return Filtered([], error="nobody knows")
        if name == "waits":
            self.waiting.set()
            await self.gate.wait()
        passing = [each for each in names if not each.endswith("0")]
        return Filtered(passing, {}, {each: "it ends in 0" for each in names if each.endswith("0")})

    async def prioritize(self, pod: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, int]:
        if "metadata" not in pod:
            raise ValueError("the pod has no metadata")
        return {name: int(name[-1]) for name in names if name[-1:].isdigit() and name[-1:].isascii()}

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        if node.endswith("0"):
            return f"{namespace}/{name} does not go to {node}"
        if namespace == "nowhere":
            raise ValueError("there is no such namespace")
        self.bound[uid] = node
        return ""

    async def preempt(
        self, pod: Mapping[str, Any], victims: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        if "metadata" not in pod:
            raise ValueError("the pod has no metadata")
        return {node: uids for node, uids in victims.items() if not node.endswith("0")}


class Wire:
    """A connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, content: bytes) -> None:
        self.writer.write(content)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers by lower-case name, and body of the next answer."""
        async with asyncio.timeout(60):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("ascii").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            return int(head[0].split()[1]), headers, await self.reader.readexactly(int(headers["content-length"]))

    async def closed(self) -> None:
        """Wait until the other side closes; whatever it sent before is dropped."""
        async with asyncio.timeout(60):
            try:
                while await self.reader.read(65536):
                    pass
            except ConnectionError:
                return


class Lab:
    """A running extender."""

    def __init__(self, address: str, rule: Rule, health: Health) -> None:
        self.address, self.rule, self.health = address, rule, health
        self.root = address.removesuffix(server.PREFIX)

    @asynccontextmanager
    async def wire(self) -> AsyncIterator[Wire]:
        host, _, port = self.root.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            yield Wire(reader, writer)
        finally:
            writer.transport.abort()

    async def ask(self, path: str, content: object = None, *, method: str = "POST") -> tuple[int, str]:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        async with aiohttp.request(method, self.root + path, data=io.BytesIO(body)) as response:
            return response.status, await response.text()


@asynccontextmanager
async def lab(limits: Limits | None = None, **settings: Any) -> AsyncIterator[Lab]:
    rule, health = Rule(), Health()
    async with server.serve(Extender(port=0, **settings), rule, health, limits=limits) as address:
        yield Lab(address, rule, health)


def question(names: Sequence[str] = ("n-1",), **pod: Any) -> dict[str, Any]:
    return {"Pod": {**POD, **pod}, "Nodes": None, "NodeNames": list(names)}


def post(verb: str, content: object, *, version: str = "1.1", more: str = "") -> bytes:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    head = f"POST /scheduler/{verb} HTTP/{version}\r\nHost: x\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make_keys(folder: Path) -> None:
    """Make a CA, certificates of it for a server and a client, a stranger's, and a key with a password."""
    (folder / "san").write_text("subjectAltName=IP:127.0.0.1\n")
    ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    for ca in ("ca", "stranger"):
        _openssl(folder, "req", "-x509", *ec, "-keyout", f"{ca}.key", "-out", f"{ca}.pem", "-subj", f"/CN={ca}")
    for name in ("server", "renewed", "client"):
        _openssl(folder, "req", *ec, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        _openssl(
            folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-out", f"{name}.pem", "-extfile", "san",
        )  # fmt: skip
    _openssl(folder, "ec", "-in", "server.key", "-aes256", "-passout", "pass:secret", "-out", "locked.key")
