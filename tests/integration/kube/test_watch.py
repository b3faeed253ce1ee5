"""List and watch over real sockets, where the server misbehaves; and what the watch makes of it."""

import asyncio
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest

from kube import api, follow
from kube.api import Api
from kube.follow import Follower, News
from schemas.sections.measurement import Kube
from schemas.settings import SettingsError
from tests.integration.kube import api_server
from tests.integration.kube.api_server import ApiServer, added, event, lines, page, pod, refusal

BOOKMARK = event("BOOKMARK", {"metadata": {"resourceVersion": "70"}})
EXPIRED = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"})


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
            async with asyncio.timeout(60), aclosing(follower.news(version)) as news:
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
    heard = await Follow(server, tmp_path, page=2).hear(7)
    assert published(heard) == [
        ("listing", 0), ("present", 10), ("present", 10), ("listed", 10), ("changed", 11), ("reached", 70),
        ("changed", 71),
    ]  # fmt: skip
    assert [query for _, verb, query, _ in server.asked if verb == "list"] == [
        {"limit": "2"},
        {"limit": "2", "continue": "next"},
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
    heard = await Follow(server, tmp_path, page=2).hear(8)
    assert published(heard)[-4:] == [("listing", 0), ("present", 12), ("present", 12), ("listed", 12)]
    assert server.asked[-1][2] == {}


async def test_a_connection_that_breaks_in_the_middle_of_an_event_is_taken_up_behind_the_last_whole_one(
    server: ApiServer, tmp_path: Path
) -> None:
    whole, half = added("a", 51), added("b", 52)[:40]
    server.script("pods", "watch", lines(whole, half, then="cut"), lines(added("b", 52)))
    assert published(await Follow(server, tmp_path).hear(2, version=50)) == [("changed", 51), ("changed", 52)]
    assert server.versions() == ["50", "51"]


@pytest.mark.slow
async def test_watches_that_a_proxy_cuts_while_nothing_happens_are_taken_up_at_once_and_are_no_outage(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_LASTING_SECONDS", 0.1)
    server.script("pods", "watch", *[lines(then="cut", after_seconds=0.2)] * 8, lines(added("a", 51)))
    following = Follow(server, tmp_path)
    assert published(await following.hear(1, version=50)) == [("changed", 51)]
    assert set(following.reasons) == {None}
    assert max(following.pauses) <= 0.5
    monkeypatch.setattr(follow, "_LASTING_SECONDS", 10)
    server.script("pods", "watch", *[lines(then="cut")] * 8, lines(added("a", 51)))
    await following.hear(1, version=50)
    assert following.reasons[-2] not in (None, following.reasons[0])
    assert max(following.pauses) > 5


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
async def test_garbage_is_reported_and_in_the_end_displaced_by_a_new_list(
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
async def test_a_list_that_is_none_is_reported_and_asked_for_again(
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


async def test_a_server_that_has_not_reached_our_version_is_listed_instead_of_watched(
    server: ApiServer, tmp_path: Path
) -> None:
    server.reached = 49
    server.script("pods", "list", page(49, pod("a", 40)))
    following = Follow(server, tmp_path)
    assert published(await following.hear(3, version=50)) == [("listing", 0), ("present", 49), ("listed", 49)]
    assert server.versions() == []
    assert following.pauses == []


@pytest.mark.parametrize("then", ["hold", "cut", "end"])
async def test_a_server_that_went_back_while_a_watch_heard_nothing_is_listed_again(
    server: ApiServer, tmp_path: Path, then: str
) -> None:
    async def restored(request: Any) -> Any:
        server.reached = 49
        return await lines(then=then)(request)

    server.script("pods", "watch", restored)
    server.script("pods", "list", page(49))
    heard = await Follow(server, tmp_path, watch_seconds=0.1).hear(2, version=50)
    assert published(heard) == [("listing", 0), ("listed", 49)]
    assert server.versions() == ["50"]


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
