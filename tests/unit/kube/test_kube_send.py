"""Single requests over real sockets: what is sent, what is made of each answer, and credentials that are read again."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kube import answer, apply
from kube.api import Api, _children, cluster
from schemas.sections.measurement import Kube
from schemas.settings import SettingsError
from tests.integration.kube.api_server import kubeconfig
from tests.support.extender.asking import make_keys

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers every request with `answer`, and keeps what was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[tuple[str, str, str, str, str]] = []
        self.answer: Answer = self.echo

    async def echo(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(json.loads(await request.text() or "{}"), status=201)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        token, kind = request.headers.get("Authorization", ""), request.headers.get("Content-Type", "")
        self.asked.append((request.method, request.path_qs, token, kind, await request.text()))
        return await self.answer(request)

    def configure(self, path: Path, token: str) -> Path:
        return kubeconfig(path, self.url, token)


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    running, application = Server(), web.Application()
    application.router.add_route("*", "/{rest:.*}", running.handle)
    runner = web.AppRunner(application, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    running.url = "{}://{}:{}".format("https" if tls else "http", *runner.addresses[0][:2])
    yield running
    await runner.cleanup()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as running:
        yield running


@pytest.fixture
async def client(server: Server, tmp_path: Path) -> AsyncIterator[Api]:
    api = Api(Kube(config=server.configure(tmp_path / "kubeconfig", "first")))
    yield api
    await api.close()


@contextmanager
def dropping() -> Iterator[str]:
    """Give an address where connecting gets no answer: the queue of connections is full, and nothing accepts them."""
    with ExitStack() as stack, socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            with suppress(BlockingIOError):
                waiting.connect(full.getsockname())
        yield "http://{}:{}".format(*full.getsockname())


def refusal(status: int, message: str) -> Answer:
    async def refuse(_: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "message": message}, status=status)

    return refuse


async def test_what_is_sent_is_what_was_asked_for(server: Server, client: Api) -> None:
    body: dict[str, Any] = {"metadata": {"annotations": {"spazio.room": None, "ünï": "ö"}}}
    merge = "application/merge-patch+json"
    assert await client.send("PATCH", "/api/v1/nodes/n1", body, query={"dryRun": "All"}, kind=merge) == body
    assert await client.send("GET", "/api/v1/nodes/n1") == {}
    assert await client.send("POST", "/api/v1/namespaces/s/pods/p/binding", {"target": {"name": "n1"}})
    await apply.apply(client, "/api/v1/nodes/n1/status", {"status": {}}, force=True)
    asked = [(method, path, token, kind) for method, path, token, kind, _ in server.asked]
    assert asked == [
        ("PATCH", "/api/v1/nodes/n1?dryRun=All", "Bearer first", merge),
        ("GET", "/api/v1/nodes/n1", "Bearer first", "application/json"),
        ("POST", "/api/v1/namespaces/s/pods/p/binding", "Bearer first", "application/json"),
        (
            "PATCH", "/api/v1/nodes/n1/status?fieldManager=spazio&force=true", "Bearer first",
            "application/apply-patch+yaml",
        ),
    ]  # fmt: skip
    assert json.loads(server.asked[0][4]) == body


async def test_credentials_that_are_refused_are_read_again(server: Server, client: Api, tmp_path: Path) -> None:
    server.answer = refusal(401, "Unauthorized")
    with pytest.raises(answer.Unknown, match="renew the token"):
        await client.send("GET", "/api/v1/nodes/n1")
    server.configure(tmp_path / "kubeconfig", "second")
    server.answer = server.echo
    await client.send("GET", "/api/v1/nodes/n1")
    assert [token for _, _, token, _, _ in server.asked] == ["Bearer first", "Bearer second"]


async def test_an_authority_of_the_server_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    make_keys(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    async with serving(tls) as server:
        path = kubeconfig(tmp_path / "kubeconfig", server.url, "t", tmp_path / "stranger.pem")
        api = Api(Kube(config=path))
        with pytest.raises(answer.Away, match="certificate verify failed"):
            await api.send("GET", "/api/v1/nodes/n1")
        kubeconfig(path, server.url, "t", tmp_path / "ca.pem")
        assert await api.send("GET", "/api/v1/nodes/n1") == {}
        await api.close()


async def test_another_cluster_at_the_same_address_is_told_by_its_authority(tmp_path: Path) -> None:
    make_keys(tmp_path)

    async def identity(authority: str) -> str:
        path = tmp_path / authority if authority else None
        return await cluster(Kube(config=kubeconfig(tmp_path / "kubeconfig", "https://10.96.0.1:443", "t", path)))

    first, second, none = [await identity(name) for name in ("ca.pem", "stranger.pem", "")]
    assert len({first, second, none}) == 3
    assert {each.partition(" ")[0] for each in (first, second, none)} == {"https://10.96.0.1:443"}
    assert await identity("ca.pem") == first


@pytest.mark.parametrize("how", ["send", "get"])
async def test_an_address_that_gives_no_answer_is_read_again(server: Server, tmp_path: Path, how: str) -> None:
    async def ask() -> Any:
        if how == "send":
            return await api.send("GET", "/api/v1/nodes", timeout_seconds=2)
        async with api.get("nodes", {}, silence_seconds=2) as response:
            return await response.json()

    with dropping() as url:
        api = Api(Kube(config=kubeconfig(tmp_path / "kubeconfig", url, "t")))
        with pytest.raises(answer.Away, match="nodes: nothing has come in time"):
            await ask()
        server.configure(tmp_path / "kubeconfig", "t")
        assert await ask() == {}
        await api.close()


async def test_a_credential_plugin_that_hangs_is_an_outage_and_a_fault_at_the_start(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube.api._LOAD_SECONDS", 0.3)
    path = server.configure(tmp_path / "kubeconfig", "t")
    content = json.loads(path.read_text())
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", "sleep 4711; true"]}
    content["users"][0]["user"] = {"exec": plugin | {"interactiveMode": "Never"}}
    path.write_text(json.dumps(content))
    client = Api(Kube(config=path))
    with pytest.raises(answer.Away, match="credential plugin does not end"):
        async with client.get("nodes", {}, silence_seconds=60):
            pass
    with pytest.raises(SettingsError, match="credential plugin does not end"):
        await cluster(Kube(config=path))
    async with asyncio.timeout(5):
        while _children("self"):  # noqa: ASYNC110 # which were killed, and end
            await asyncio.sleep(0.05)
    server.configure(tmp_path / "kubeconfig", "t")
    async with client.get("nodes", {}, silence_seconds=60) as response:
        assert await response.json() == {}
    await client.close()


async def test_an_authority_that_cannot_be_read_is_a_fault_of_the_kubeconfig(server: Server, tmp_path: Path) -> None:
    path = server.configure(tmp_path / "kubeconfig", "t")
    content = json.loads(path.read_text())
    content["clusters"][0]["cluster"] = {"server": "https://127.0.0.1:1", "certificate-authority": "/proc/self/mem"}
    path.write_text(json.dumps(content))
    with pytest.raises(SettingsError, match="/proc/self/mem cannot be read"):
        await cluster(Kube(config=path))


@pytest.mark.slow
async def test_many_requests_at_the_same_time_are_refused_each_by_the_server(server: Server, client: Api) -> None:
    server.answer = refusal(401, "Unauthorized")
    for number in range(5):
        requests = (client.send("GET", f"/api/v1/nodes/n{number}") for number in range(20))
        results = await asyncio.gather(*requests, return_exceptions=True)
        assert [type(result) for result in results] == [answer.Unknown] * 20, number
    server.answer = server.echo
    assert await client.send("GET", "/api/v1/nodes/n1") == {}


@pytest.mark.parametrize("text", ["", "garbage", "[]", "1", "null", '{"a":'])
async def test_an_answer_that_is_no_object_is_trouble(server: Server, client: Api, text: str) -> None:
    async def garble(_: web.Request) -> web.StreamResponse:
        return web.Response(text=text)

    server.answer = garble
    with pytest.raises(answer.Trouble, match="patch nodes/status: the answer is no"):
        await client.send("PATCH", "/api/v1/nodes/n1/status", {})


async def test_a_server_that_does_not_answer_in_time_or_at_all_is_away(server: Server, client: Api) -> None:
    async def dally(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(1)
        return web.Response()

    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(40):
            await response.write(b" ")
            await asyncio.sleep(0.05)
        return response

    async def cut(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    for how in (dally, drip, cut):
        server.answer = how
        with pytest.raises(answer.Away, match="get nodes: "):
            await client.send("GET", "/api/v1/nodes/n1", timeout_seconds=0.3)
