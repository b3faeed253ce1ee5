"""A real `spazio watch` for tests, an account of what the API server reported, and of what was published of it."""

import asyncio
import contextlib
import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from bus import stream
from bus.folding.checkpoint import Store
from bus.reading.reader import Reader
from kube import ledger, pod
from schemas import codec
from schemas.messages.facts import NodeFacts, PodFacts
from schemas.settings import Settings
from schemas.subject import Names, name
from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.support.server.program import SPAZIO, Program

NAMES = Names()


class Watch(Program):
    """A running `spazio watch`."""

    def __init__(self, settings: Settings, config: Path, folder: Path) -> None:
        self._note = folder / "run" / "watch.json"
        command = [
            *SPAZIO, "watch", "--nats", settings.nats_url, "--kube-config", str(config), "--kube-save-seconds", "1",
            "--kube-page", "300", "--http-port", "0", "--data-dir", str(folder), "--nats-partitions", "2",
        ]  # fmt: skip
        super().__init__(command, folder / "watch.log")

    def address(self) -> str:
        return str(json.loads(self._note.read_text())["http"])


class Recorder:
    """Writes down every state of every pod that the API server reports, by a watch of its own."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.states: dict[str, list[tuple[int, bool]]] = defaultdict(list)
        self.version = 0
        self.ready = asyncio.Event()
        self._cores: dict[str, PodFacts] = {}
        self._starting: set[str] = set()

    async def run(self) -> None:
        headers = {"Authorization": "Bearer admin-token"}
        async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(ssl=False)) as session:
            url = f"{self._plane.url}/api/v1/pods"
            async with session.get(url) as response:
                self.version = int((await response.json())["metadata"]["resourceVersion"])
            self.ready.set()
            while True:
                with contextlib.suppress(aiohttp.ClientError, OSError, json.JSONDecodeError):  # a line may be cut off
                    await self._follow(session, url)
                await asyncio.sleep(0.1)

    async def _follow(self, session: aiohttp.ClientSession, url: str) -> None:
        query = {"watch": "1", "resourceVersion": str(self.version)}
        async with session.get(url, params=query, timeout=aiohttp.ClientTimeout()) as response:
            async for line in response.content:
                self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        thing = event["object"]
        assert event["type"] != "ERROR", thing
        uid, self.version = thing["metadata"]["uid"], int(thing["metadata"]["resourceVersion"])
        before = self._cores.get(uid)
        seconds = None if before is None else before.initialization_seconds
        starting = uid in self._starting
        facts = pod.facts(thing, at_us=0, initialization_seconds=seconds, starting=starting)
        if pod.starts(facts, started_before=starting):
            self._starting.add(uid)
        else:
            self._starting.discard(uid)
        deleted = event["type"] == "DELETED"
        if deleted or before is None or ledger.core(before) != ledger.core(facts):
            self.states[uid].append((self.version, deleted))
        self._cores[uid] = facts


async def published(client: Client) -> list[PodFacts | NodeFacts]:
    """Return all facts in the stream, in order."""
    result: list[PodFacts | NodeFacts] = []
    kinds: dict[str, type[PodFacts | NodeFacts]] = {"nodefacts": NodeFacts, "podfacts": PodFacts}
    for kind, message in kinds.items():
        subject = NAMES.part("*", kind)
        try:
            last = (await client.jetstream().get_msg(NAMES.telemetry, subject=subject)).seq or 0
        except NotFoundError:
            continue
        async with Reader(client, NAMES.telemetry, [subject]) as reader:
            while reader.position < last:
                result += [codec.decode_from(message, each.data, each.subject) for each in await reader.read()]
    return result


async def published_pods(client: Client) -> list[PodFacts]:
    return [message for message in await published(client) if isinstance(message, PodFacts)]


async def kept(client: Client) -> dict[str, PodFacts]:
    """Return what the bucket of pods has, by UID."""
    result: dict[str, PodFacts] = {}
    bucket = NAMES.pods_bucket
    async with Reader(client, f"KV_{bucket}", [f"$KV.{bucket}.>"], newest=True) as reader:
        while messages := await reader.read(timeout_seconds=0.5):
            for message in messages:
                uid = name(message.subject.rpartition(".")[2])
                result.pop(uid, None)
                if message.data:
                    result[uid] = codec.decode(PodFacts, message.data)
    return result


async def saved(client: Client) -> bool:
    """Tell whether the watch has written a checkpoint."""
    identity = (await stream.describe(client, NAMES.telemetry)).identity
    return await Store(client, NAMES.checkpoints, timeout_seconds=2).load("watch", identity) is not None


async def until(condition: Callable[[], Any], seconds: float, what: Callable[[], object]) -> None:
    """Wait until a condition, evaluated by each call, is true."""
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, what()
        await asyncio.sleep(0.25)


async def agrees(client: Client, kubectl: Kubectl) -> bool:
    """Tell whether the newest facts of each pod are those of the API server, and the others deleted."""
    newest: dict[str, PodFacts] = {}
    for facts in await published_pods(client):
        if facts.pod not in newest or facts.version > newest[facts.pod].version:
            newest[facts.pod] = facts
    alive = {uid: facts for uid, facts in newest.items() if not facts.deleted}
    truth = {thing["metadata"]["uid"]: thing for thing in await kubectl.list("pods")}
    if alive.keys() != truth.keys():
        return False
    for uid, thing in truth.items():
        seconds = alive[uid].initialization_seconds
        if ledger.core(alive[uid]) != ledger.core(pod.facts(thing, at_us=0, initialization_seconds=seconds)):
            return False
    return {uid: ledger.core(facts) for uid, facts in (await kept(client)).items()} == {
        uid: ledger.core(facts) for uid, facts in alive.items()
    }


def none_doubled(messages: list[PodFacts]) -> None:
    """Each state is published once: versions rise, facts differ from those before, and nothing comes after."""
    last: dict[str, PodFacts] = {}
    for facts in messages:
        before = last.get(facts.pod)
        if before is not None:
            assert not before.deleted, facts
            assert facts.version > before.version, (before, facts)
            assert facts.deleted or ledger.core(facts) != ledger.core(before), facts
        last[facts.pod] = facts


async def all_pods(work: Callable[[str, int], Any], numbers: range) -> None:
    await asyncio.gather(*(work(f"p{number}", number) for number in numbers))
