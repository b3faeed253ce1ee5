"""The cluster watch on a real API server, while everything around it and itself is killed."""

import asyncio
import json
import signal
from collections import defaultdict
from collections.abc import Callable

import pytest
from nats.aio.client import Client

from tests.conftest import NatsServer
from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.watch.watching import (
    Recorder,
    Watch,
    agrees,
    all_pods,
    none_doubled,
    published_pods,
    saved,
    until,
)

# Of which each part is deleted or changed at its own moment.
PARTS = 13

pytestmark = pytest.mark.slow


# Without its cache the API server reports every state since the last compaction, after a restart, too, so that what was
# published can be held against what was reported. With it, as clusters run, a restart alone makes versions go away;
# what counts there is that it goes on, for which fewer pods do.
@pytest.mark.parametrize("plane", [("--watch-cache=false",), ()], ids=["uncached", "cached"], indirect=True)
async def test_no_state_is_missed_or_doubled_while_api_server_watch_and_nats_are_killed(
    plane: ControlPlane,
    kubectl: Kubectl,
    watch: Watch,
    client: Client,
    nats_server: NatsServer,
    request: pytest.FixtureRequest,
) -> None:
    cached = "uncached" not in request.node.name
    pods = PARTS * (50 if cached else 100)
    for number in range(5):
        await kubectl.node(f"n{number}")
    recorder = Recorder(plane)
    if not cached:
        recording = asyncio.create_task(recorder.run())
        await recorder.ready.wait()
    watch.start()
    # Without a checkpoint, the next run begins with a list, which has the last state of each pod alone.
    await until(lambda: saved(client), 60, lambda: watch.log.read_text()[-4000:])

    await create_while_the_api_server_restarts(plane, kubectl, pods)
    await change_while_watch_and_nats_restart(kubectl, watch, nats_server, pods)
    await delete_while_the_watch_is_away(kubectl, watch, pods // PARTS)
    await until(lambda: agrees(client, kubectl), 60, lambda: watch.log.read_text()[-4000:])
    messages = await published_pods(client)
    none_doubled(messages)
    if not cached:
        assert not recording.done(), recording
        recording.cancel()
        heard: dict[str, list[tuple[int, bool]]] = defaultdict(list)
        for facts in messages:
            heard[facts.pod].append((facts.version, facts.deleted))
        assert len(messages) >= 4 * (pods + pods // PARTS)
        assert heard == recorder.states

    await forget_its_past(plane, kubectl, watch, client, pods // PARTS)
    reasons = [str(event.get("reason")) for event in watch.events if event["event"] == "kube.interrupted"]
    assert sum("too old" in reason or "compacted" in reason for reason in reasons) >= 2, reasons
    none_doubled(await published_pods(client))
    assert watch.end() == 0
    failures = ("kube.refused", "facts.refused", "service.failed")
    failed = [event for event in watch.events if event["event"] in failures]
    assert not failed, json.dumps(failed, indent=1)


async def restart(stop: Callable[[], None], start: Callable[[], None], after: float) -> None:
    await asyncio.sleep(after)
    await asyncio.to_thread(stop)
    await asyncio.to_thread(start)


async def create_while_the_api_server_restarts(plane: ControlPlane, kubectl: Kubectl, pods: int) -> None:
    killing = asyncio.create_task(restart(plane.kill_server, plane.start_server, 1.5))
    await all_pods(lambda name, number: kubectl.pod(name, labels={"app": f"a{number % 7}"}), range(pods))
    await killing


async def change_while_watch_and_nats_restart(
    kubectl: Kubectl, watch: Watch, nats_server: NatsServer, pods: int
) -> None:
    async def change(name: str, number: int) -> None:
        await kubectl.bind(name, f"n{number % 5}")
        await kubectl.label(name, step="one")
        running = [{"type": "Ready", "status": "True", "lastTransitionTime": "2040-01-01T00:00:00Z"}]
        await kubectl.status(name, phase="Running", conditions=running)

    async def torment() -> None:
        for after in (1.5, 2.1, 2.4):
            await restart(watch.kill, watch.start, after)

    killing = asyncio.create_task(torment())
    await all_pods(change, range(pods // 2))
    await killing
    killing = asyncio.create_task(restart(nats_server.kill, nats_server.start, 1.0))
    await all_pods(change, range(pods // 2, pods))
    await killing


async def delete_while_the_watch_is_away(kubectl: Kubectl, watch: Watch, part: int) -> None:
    """Some are deleted before; the watch resumes."""
    await all_pods(lambda name, _: kubectl.delete(name), range(2 * part))
    watch.kill()
    await all_pods(lambda name, _: kubectl.delete(name), range(2 * part, 4 * part))
    await kubectl.pod("p0", labels={"again": "yes"})
    watch.start()


async def forget_its_past(plane: ControlPlane, kubectl: Kubectl, watch: Watch, client: Client, part: int) -> None:
    """What the watch would go on from is gone, twice: while it is down, and while it stands still."""
    watch.kill()
    await all_pods(lambda name, _: kubectl.delete(name), range(4 * part, 7 * part))
    await all_pods(lambda name, _: kubectl.label(name, step="two"), range(7 * part, 10 * part))
    plane.kill_server()
    plane.compact()
    plane.start_server()
    watch.start()
    await until(lambda: agrees(client, kubectl), 60, lambda: watch.log.read_text()[-4000:])
    watch.send(signal.SIGSTOP)
    await all_pods(lambda name, _: kubectl.delete(name), range(7 * part, 9 * part))
    await all_pods(lambda name, _: kubectl.label(name, step="three"), range(9 * part, 12 * part))
    plane.kill_server()
    plane.compact()
    plane.start_server()
    watch.send(signal.SIGCONT)
    await until(lambda: agrees(client, kubectl), 60, lambda: watch.log.read_text()[-4000:])
