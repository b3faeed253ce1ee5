"""List and watch over real sockets, where the server misbehaves; and what the watch makes of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from bus.health import Health
from bus.reading.reader import Reader
from bus.reading.setback import SET_BACK
from kube import api, follow
from kube.api import Api
from kube.follow import Follower, News
from schemas import codec
from schemas.live import Live
from schemas.messages.facts import PodFacts
from schemas.sections.measurement import Kube
from schemas.settings import Settings, SettingsError
from schemas.subject import Names, token
from spazio.command import watch
from spazio.service.service import Context
from tests.conftest import NatsServer
from tests.integration.kube import api_server
from tests.integration.kube.api_server import ApiServer, added, event, lines, page, pod, refusal
from tests.support.power import Power, publish

NAMES = Names()
BOOKMARK = event("BOOKMARK", {"metadata": {"resourceVersion": "70"}})
EXPIRED = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"})


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer().running() as running:
        yield running


class Follow:
    """A follower of pods whose pauses are written down instead of waited for."""

    def __init__(self, server: ApiServer, folder: Path, **kube: Any) -> None:
        self.settings = Kube(config=server.kubeconfig(folder / "kubeconfig"), **kube)
        self.pauses: list[float] = []
        self.reasons: list[str | None] = []
        self.patient = asyncio.Event()

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if len(self.pauses) > 12:
            self.patient.set()
        await asyncio.sleep(0)

    async def hear(self, count: int, version: int = 0) -> list[News]:
        """Return the first news."""
        client, heard = Api(self.settings), list[News]()
        follower = Follower(client, "pods", self.settings, self.reasons.append, sleep=self._sleep)
        try:
            async with asyncio.timeout(20), aclosing(follower.news(version)) as news:
                async for each in news:
                    heard.append(each)
                    if len(heard) == count:
                        break
        finally:
            await client.close()
        return heard


def published(news: list[News]) -> list[tuple[str, int]]:
    return [(each.what, each.version) for each in news]


async def test_pages_are_one_list_and_the_watch_goes_on_behind_it(server: ApiServer, tmp_path: Path) -> None:
    server.script("pods", "list", page(10, pod("a", 3), rest="next"), page(10, pod("b", 4)))
    server.script("pods", "watch", lines(added("c", 11) + BOOKMARK), lines(added("d", 71)))
    heard = await Follow(server, tmp_path, page=1).hear(7)
    assert published(heard) == [
        ("listing", 0), ("present", 10), ("present", 10), ("listed", 10), ("changed", 11), ("reached", 70),
        ("changed", 71),
    ]  # fmt: skip
    assert [query for _, verb, query, _ in server.asked if verb == "list"] == [
        {"limit": "1"},
        {"limit": "1", "continue": "next"},
    ]
    assert server.versions() == ["10", "70"]
    assert server.asked[2][2]["allowWatchBookmarks"] == "true"


@pytest.mark.parametrize("answer", [lines(EXPIRED), refusal(410, "gone")], ids=["event", "status"])
async def test_a_version_that_is_gone_means_a_new_list_at_once(
    server: ApiServer, tmp_path: Path, answer: api_server.Answer
) -> None:
    server.script("pods", "watch", answer)
    server.script("pods", "list", page(90, pod("a", 80)))
    following = Follow(server, tmp_path)
    assert published(await following.hear(3, version=50)) == [("listing", 0), ("present", 90), ("listed", 90)]
    assert following.pauses == []


async def test_versions_that_are_always_gone_are_asked_for_ever_more_slowly(server: ApiServer, tmp_path: Path) -> None:
    server.script("pods", "watch", *[refusal(410)] * 6)
    following = Follow(server, tmp_path)
    await following.hear(2 * 6, version=50)
    assert len(following.pauses) == 5
    assert following.pauses[-1] > 3 * following.pauses[0]


async def test_a_list_whose_rest_expires_twice_is_read_in_one_piece(server: ApiServer, tmp_path: Path) -> None:
    half = page(10, pod("a", 3), rest="next")
    server.script("pods", "list", half, refusal(410), half, refusal(410), page(12, pod("a", 3), pod("b", 4)))
    heard = await Follow(server, tmp_path, page=1).hear(8)
    assert published(heard)[-4:] == [("listing", 0), ("present", 12), ("present", 12), ("listed", 12)]
    assert server.asked[-1][2] == {}


async def test_a_connection_that_breaks_in_the_middle_of_an_event_is_taken_up_behind_the_last_whole_one(
    server: ApiServer, tmp_path: Path
) -> None:
    whole, half = added("a", 51), added("b", 52)[:40]
    server.script("pods", "watch", lines(whole, half, then="cut"), lines(added("b", 52)))
    assert published(await Follow(server, tmp_path).hear(2, version=50)) == [("changed", 51), ("changed", 52)]
    assert server.versions() == ["50", "51"]


async def test_events_may_come_in_any_pieces_and_many_at_once(server: ApiServer, tmp_path: Path) -> None:
    text = b"".join(added(f"p{number}", 51 + number, note="x" * 5000) for number in range(40))
    pieces = [text[start : start + 4096] for start in range(0, len(text), 4096)]
    server.script("pods", "watch", lines(*pieces))
    heard = await Follow(server, tmp_path).hear(40, version=50)
    assert [each.version for each in heard] == list(range(51, 91))


@pytest.mark.parametrize(
    "garbage",
    [b"nonsense\n", b"[]\n", b'{"type":"ADDED"}\n', b'{"type":"ODD","object":{"metadata":{"resourceVersion":"5"}}}\n',
     b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"x"}}}\n', b'{"type":["ADDED"],"object":{}}\n',
     b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"51"}}}\n',
     b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"51","name":7,"uid":"u"}}}\n',
     b"\xff\xfe\n", b"[" * 100_000 + b"\n", b'{"type":"ERROR","object":{}}\n'],
)  # fmt: skip
async def test_garbage_is_told_and_in_the_end_displaced_by_a_new_list(
    server: ApiServer, tmp_path: Path, garbage: bytes
) -> None:
    server.script("pods", "watch", *[lines(garbage)] * 4)
    server.script("pods", "list", page(90))
    following = Follow(server, tmp_path)
    assert published(await following.hear(2, version=50)) == [("listing", 0), ("listed", 90)]
    assert server.versions() == ["50"] * 4
    assert following.reasons[-1] is not None or None in following.reasons
    assert any(reason and "watch pods" in reason for reason in following.reasons)


@pytest.mark.parametrize(
    "garbage",
    [b"nonsense", b"[]", b"{}", b'{"metadata":{"resourceVersion":"5"},"items":[7]}',
     b'{"metadata":{"resourceVersion":"5"},"items":{"a":1}}', b'{"metadata":[],"items":[]}'],
)  # fmt: skip
async def test_a_list_that_is_none_is_told_and_asked_for_again(
    server: ApiServer, tmp_path: Path, garbage: bytes
) -> None:
    server.script("pods", "list", lines(garbage), page(90))
    assert published(await Follow(server, tmp_path).hear(3)) == [("listing", 0), ("listing", 0), ("listed", 90)]


async def test_a_server_that_asks_for_a_pause_gets_it(server: ApiServer, tmp_path: Path) -> None:
    server.script("pods", "list", refusal(429, "slow down", Retry_After="7"), page(5))
    following = Follow(server, tmp_path)
    assert published(await following.hear(3))[-1] == ("listed", 5)
    assert following.pauses == [7]
    assert server.lists() == 2


async def test_an_unreachable_server_is_waited_for_without_forgetting_the_version(tmp_path: Path) -> None:
    async with ApiServer().running() as server:
        following = Follow(server, tmp_path)
    waiting = asyncio.create_task(following.hear(1, version=50))
    await following.patient.wait()
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    assert 10 < max(following.pauses) <= 30
    assert "Cannot connect" in str(following.reasons[0])
    server.script("pods", "watch", lines(added("a", 51)))
    async with server.running():
        server.kubeconfig(tmp_path / "kubeconfig")
        assert published(await following.hear(1, version=50)) == [("changed", 51)]
    assert server.lists() == 0
    assert following.reasons[-1] is None


async def test_a_watch_that_falls_silent_is_replaced(server: ApiServer, tmp_path: Path) -> None:
    server.script("pods", "watch", lines(then="hold"), lines(added("a", 51)))
    heard = await Follow(server, tmp_path, watch_seconds=0.1).hear(1, version=50)
    assert published(heard) == [("changed", 51)]
    assert server.versions() == ["50", "50"]


async def test_a_watch_that_ends_at_once_is_not_begun_in_a_hurry(server: ApiServer, tmp_path: Path) -> None:
    server.script("pods", "watch", lines(), lines(), lines(added("a", 51)))
    following = Follow(server, tmp_path)
    assert published(await following.hear(1, version=50)) == [("changed", 51)]
    assert len(following.pauses) == 2


async def test_a_server_that_went_back_in_time_is_listed_again(server: ApiServer, tmp_path: Path) -> None:
    server.script("pods", "watch", lines(added("a", 7)))
    server.script("pods", "list", page(8))
    assert published(await Follow(server, tmp_path).hear(2, version=50)) == [("listing", 0), ("listed", 8)]


async def test_credentials_are_read_again_when_the_server_does_not_accept_them(
    server: ApiServer, tmp_path: Path
) -> None:
    following = Follow(server, tmp_path)

    async def renewed(request: Any) -> Any:
        server.kubeconfig(tmp_path / "kubeconfig", "new")
        return await refusal(401, "expired")(request)

    server.script("pods", "watch", renewed, lines(added("a", 51)))
    assert published(await following.hear(1, version=50)) == [("changed", 51)]
    assert [token for *_, token in server.asked] == ["t", "new"]
    assert "renew the token" in str(following.reasons[0])


def test_which_api_server_is_meant(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("{}")
    inside = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert api.files(Kube(config=config), inside) == str(config)
    assert api.files(Kube(), inside) == ""
    assert api.files(Kube(), {"KUBECONFIG": f"/nowhere:{config}"}) == f"/nowhere:{config}"
    with pytest.raises(SettingsError, match="--kube-config"):
        api.files(Kube(), {"KUBECONFIG": "/nowhere"})
    with pytest.raises(SettingsError, match="is no file"):
        api.files(Kube(config=tmp_path / "absent"), inside)


@pytest.mark.parametrize(
    "content",
    ["", "[", "- 1", "{}", '{"users": [{"name": "u", "user": {"token": "s3cret"}}], "current-context": "x"}',
     '{"clusters": [], "users": [{"user": {"token": "s3cret"}}], "contexts": [], "current-context": "x"}'],
)  # fmt: skip
async def test_a_broken_kubeconfig_is_a_fault_that_names_the_file_and_no_secret(tmp_path: Path, content: str) -> None:
    config = tmp_path / "config"
    config.write_text(content)
    with pytest.raises(SettingsError, match=r"kube config: .*config cannot be used: .") as fault:
        await api.configuration(Kube(config=config))
    assert "s3cret" not in str(fault.value)


@asynccontextmanager
async def watching(client: Any, settings: Settings, server: ApiServer, folder: Path) -> AsyncIterator[Health]:
    kube = Kube(config=server.kubeconfig(folder / "kubeconfig"), save_seconds=0.2)
    health = Health()
    settings = settings.model_copy(update={"kube": kube})
    context = Context(client, settings, health, Live(settings))
    running = asyncio.create_task(watch.keep(context, server.url))
    try:
        yield health
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def stored(client: Client, count: int) -> list[PodFacts]:
    """Return the facts of pods in the stream, once there are so many and no more come."""
    facts: list[PodFacts] = []
    async with asyncio.timeout(20), Reader(client, NAMES.telemetry, [NAMES.part("*", "podfacts")]) as reader:
        while len(facts) < count:
            facts += [codec.decode_from(PodFacts, each.data, each.subject) for each in await reader.read()]
        assert await reader.read(timeout_seconds=0.3) == []
    return facts


async def test_nothing_is_lost_when_nats_is_away_and_reading_stops_while_too_much_waits(
    client: Client, settings: Settings, nats_server: NatsServer, server: ApiServer, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(watch, "_MOST_WAITING", 10)
    begun, events = asyncio.Event(), [added(f"p{number}", 51 + number, pad="x" * 4000) for number in range(1000)]

    async def many(request: Any) -> Any:
        await asyncio.to_thread(nats_server.kill)
        begun.set()
        return await lines(*events, then="hold")(request)

    server.script("pods", "list", page(50))
    server.script("pods", "watch", many)
    counted = follow.EVENTS.labels("pods", "ADDED")._value
    before = counted.get()
    async with watching(client, settings, server, tmp_path):
        async with asyncio.timeout(20):
            await begun.wait()
        await asyncio.sleep(0.5)
        assert counted.get() - before <= 30
        await asyncio.to_thread(nats_server.start)
        facts = await stored(client, 1000)
    assert [each.version for each in facts] == list(range(51, 1051))


async def test_a_watch_that_begins_again_says_only_what_is_new(
    client: Client, settings: Settings, server: ApiServer, tmp_path: Path
) -> None:
    server.script("pods", "list", page(50, pod("a", 41), pod("b", 42), pod("c", 43)))
    server.script("pods", "watch", lines(added("a", 51, x="y"), then="hold"))
    async with watching(client, settings, server, tmp_path):
        await stored(client, 4)
    # It resumes behind 51; what it heard before is heard again.
    server.script("pods", "watch", lines(event("DELETED", pod("b", 52)), added("a", 53, x="y"), then="hold"))
    async with watching(client, settings, server, tmp_path):
        facts = await stored(client, 5)
    assert server.versions()[-1] == "51"
    assert server.lists() == 1
    assert [(each.name, each.version, each.deleted) for each in facts[-2:]] == [("a", 51, False), ("b", 52, True)]
    # Another cluster: its versions mean nothing, and what it lacks is gone.
    async with ApiServer().running() as other:
        other.script("pods", "list", page(9, pod("a", 3)))
        async with watching(client, settings, other, tmp_path):
            facts = await stored(client, 7)
    assert {(each.name, each.deleted) for each in facts[-2:]} == {("a", False), ("c", True)}


async def test_a_watch_that_begins_while_nats_is_away_waits_for_it(
    client: Client, settings: Settings, nats_server: NatsServer, server: ApiServer, tmp_path: Path
) -> None:
    server.script("pods", "list", page(50, pod("a", 41)))
    server.script("pods", "watch", lines(then="hold"))
    async with watching(client, settings, server, tmp_path):
        await stored(client, 1)
    server.script("pods", "watch", lines(added("b", 51), then="hold"))
    await asyncio.to_thread(nats_server.kill)
    async with watching(client, settings, server, tmp_path) as health:
        async with asyncio.timeout(20):
            while "earlier" not in str(health.problems):  # noqa: ASYNC110 # seen from outside
                await asyncio.sleep(0.1)
        await asyncio.to_thread(nats_server.start)
        facts = await stored(client, 2)
        assert not health.problems
    assert [each.name for each in facts] == ["a", "b"]
    assert server.lists() == 1


@pytest.mark.parametrize("others", [0, 30])
async def test_facts_that_a_server_lost_with_its_power_are_published_again(
    client: Client, settings: Settings, nats_server: NatsServer, server: ApiServer, tmp_path: Path, others: int
) -> None:
    """`others`: messages of other producers that the server stores before the watch asks what is left."""
    power, go = Power(nats_server, tmp_path / "copy"), asyncio.Event()

    async def later(request: Any) -> Any:
        await go.wait()
        return await lines(added("b", 51), then="hold")(request)

    server.script("pods", "list", page(50, pod("a", 41)))
    server.script("pods", "watch", later, lines(added("b", 51), then="hold"))
    counted = SET_BACK.labels(NAMES.telemetry)._value
    before = counted.get()
    async with watching(client, settings, server, tmp_path):
        await stored(client, 1)
        await asyncio.sleep(0.5)  # until the checkpoint is written
        await power.synced()
        go.set()
        await stored(client, 2)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(power.lose)
        for number in range(others):
            await publish(client, NAMES.node("samples", f"n{number}"), b"{}")
        facts = await stored(client, 2)
        copy = await client.jetstream().key_value(NAMES.pods_bucket)
        assert codec.decode(PodFacts, (await copy.get(token(facts[1].pod))).value or b"").name == "b"
    assert [each.name for each in facts] == ["a", "b"]
    assert counted.get() == before + 1
    assert server.versions() == ["50", "50"]
    assert server.lists() == 1


async def test_trouble_with_the_api_server_is_told_as_health(
    client: Client, settings: Settings, server: ApiServer, tmp_path: Path
) -> None:
    server.script("pods", "list", refusal(403, 'pods is forbidden: User "x" cannot list resource "pods"'))
    problems: list[dict[str, str]] = []
    async with watching(client, settings, server, tmp_path) as health, asyncio.timeout(20):
        while not problems or problems[-1]:
            if health.problems or problems:
                problems.append(dict(health.problems))
            await asyncio.sleep(0.01)
    assert "verbs list and watch" in problems[0]["kubernetes pods"]
