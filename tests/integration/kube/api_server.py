"""A small HTTP server that lists and watches by a script: for what a real API server does too seldom to wait for."""

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

CLOSING = web.AppKey("closing", asyncio.Event)
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def pod(name: str, version: int, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name, "namespace": "s", "uid": f"u-{name}", "resourceVersion": str(version),
            "creationTimestamp": "2026-03-02T10:00:00Z", "labels": labels,
        },
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Pending"},
    }  # fmt: skip


def event(kind: str, thing: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": thing}).encode() + b"\n"


def added(name: str, version: int, **labels: str) -> bytes:
    return event("ADDED", pod(name, version, **labels))


def page(version: int, *things: dict[str, Any], rest: str = "") -> Answer:
    """Answer a list."""
    metadata = {"resourceVersion": str(version)} | ({"continue": rest} if rest else {})

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": metadata, "items": list(things)})

    return answer


def refusal(status: int, message: str = "", **headers: str) -> Answer:
    """Answer with an error."""

    async def answer(_: web.Request) -> web.StreamResponse:
        body = {"kind": "Status", "code": status, "message": message}
        return web.json_response(body, status=status, headers={k.replace("_", "-"): v for k, v in headers.items()})

    return answer


def lines(*parts: bytes, then: str = "end", after_seconds: float = 0) -> Answer:
    """Answer a watch with these bytes, then end it, cut the connection after a while, or hold it open."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        if then == "hold":
            await request.app[CLOSING].wait()
        if then == "cut":
            await asyncio.sleep(after_seconds)
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer


class ApiServer:
    """Answers each list and watch with the next answer of its script; beyond it a list is empty and a watch silent.

    A list with a limit of 1 asks for the version alone; no script answers it.

    Attributes:
        reached: The version that the server has reached.
        asked: Every other request so far: resource, `list` or `watch`, its parameters, its token.
    """

    def __init__(self) -> None:
        self.url = ""
        self.reached = 1 << 40
        self.asked: list[tuple[str, str, dict[str, str], str]] = []
        self._script: dict[tuple[str, str], deque[Answer]] = defaultdict(deque)

    def script(self, resource: str, verb: str, *answers: Answer) -> None:
        self._script[resource, verb].extend(answers)

    def versions(self, resource: str = "pods") -> list[str]:
        """Return from which versions it was watched."""
        return [query["resourceVersion"] for name, verb, query, _ in self.asked if (name, verb) == (resource, "watch")]

    def lists(self, resource: str = "pods") -> int:
        return sum((name, verb) == (resource, "list") for name, verb, _, _ in self.asked)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        resource, verb = request.match_info["resource"], "watch" if "watch" in request.query else "list"
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if dict(request.query) == {"limit": "1"}:
            return await page(self.reached)(request)
        self.asked.append((resource, verb, dict(request.query), token))
        script = self._script[resource, verb]
        answer = script.popleft() if script else lines(then="hold") if verb == "watch" else page(1)
        return await answer(request)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ApiServer"]:
        """Listen on loopback."""
        application = web.Application()
        application[CLOSING] = asyncio.Event()
        application.router.add_get("/api/v1/{resource}", self._answer)
        runner = web.AppRunner(application, shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        try:
            yield self
        finally:
            application[CLOSING].set()
            await runner.cleanup()

    def kubeconfig(self, path: Path, token: str = "t") -> Path:
        """Write a kubeconfig for this server."""
        return kubeconfig(path, self.url, token)


def kubeconfig(path: Path, url: str, token: str, authority: Path | None = None) -> Path:
    """Write a kubeconfig for a server, whose certificate an authority has signed."""
    cluster = {"server": url} | ({"certificate-authority": str(authority)} if authority else {})
    content = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(content))
    return path
