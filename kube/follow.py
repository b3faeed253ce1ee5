"""List, then watch: everything that happens to one kind of object, from a version on, without a gap.

A list says everything that is there at one version; a watch says every change after a version. A watch that ends,
breaks or falls silent is taken up again behind the last version heard. Only when the server no longer has that
version (410 Gone, as an answer or as an event in the stream) does a new list begin; the caller finds what is gone
by what the list lacks. Bookmarks move the version on while nothing happens.

A server whose storage was restored from a backup has not reached our version: it takes the watch, and says nothing of
what happens until then. So the version is compared with the server's at the start, and after each watch that broke or
heard nothing.

Nothing is read ahead of the caller: a slow one holds back the server.
"""

import asyncio
import json
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Literal, NamedTuple

import aiohttp
from prometheus_client import Counter

from kube import answer
from kube.api import Api
from schemas.sections.measurement import Kube

log = logging.getLogger(__name__)

_SILENCE_SECONDS = 100  # bookmarks come every minute
_GRACE_SECONDS = 10
_LIST_SECONDS = 60
_PAUSES = (0.5, 30.0)
_BRIEF_SECONDS = 1.0
_LASTING_SECONDS = 10.0
_PATIENCE = 2
_STUCK = 4
_LONGEST_LINE = 32 << 20
_MISSHAPEN = (ValueError, KeyError, TypeError, AttributeError, IndexError)

EVENTS = Counter("spazio_kube_events_total", "watch events, by resource and type", ["resource", "type"])
LISTS = Counter("spazio_kube_lists_total", "complete lists begun, by resource", ["resource"])
FAILURES = Counter(
    "spazio_kube_failures_total", "lists and watches that broke, by resource and kind", ["resource", "kind"]
)


class News(NamedTuple):
    """One thing heard.

    Attributes:
        what: `listing`: a list begins, forget an unfinished one. `present`: an object of it. `listed`: it is whole;
            what was not present is gone. `changed`, `deleted`: an event. `reached`: nothing, up to this version.
        version: resourceVersion of the list, of the event's object, or of the bookmark.
        object: The object, where there is one.
    """

    what: Literal["listing", "present", "listed", "changed", "deleted", "reached"]
    version: int
    object: dict[str, Any]


_UNFINISHED = ("listing", "present")  # of a list that breaks off here, nothing can be resumed
_MEANING: dict[str, Literal["changed", "deleted", "reached"]] = {
    "ADDED": "changed",
    "MODIFIED": "changed",
    "DELETED": "deleted",
    "BOOKMARK": "reached",
}


class Follower:
    """Follows one resource of a whole cluster."""

    def __init__(
        self,
        api: Api,
        resource: str,
        settings: Kube,
        say: Callable[[str | None], None],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Describe what to follow.

        Args:
            api: Where.
            resource: `nodes`, `pods`, or `group/version/resource` of another group.
            settings: Sizes and times.
            say: Called with a fault and its remedy, and with None when it is over.
            sleep: Waits so many seconds.
        """
        self._api, self._resource, self._settings, self._say = api, resource, settings, say
        self._sleep = sleep
        self._failures = 0
        self._refusals = 0  # failures that are not for lack of a server
        self._doubtful = True  # whether the server has reached our version
        self._last = ""
        self._reported: answer.Trouble | None = None

    async def news(self, version: int) -> AsyncGenerator[News, None]:
        """Yield news for ever, beginning behind a version; 0: with a list."""
        while True:
            try:
                async with aclosing(self._watch(version) if version else self._list()) as heard:
                    async for each in heard:
                        version = 0 if each.what in _UNFINISHED else each.version
                        yield each
            except answer.Trouble as trouble:
                version = await self._recover(trouble, version)

    async def _recover(self, trouble: answer.Trouble, version: int) -> int:
        """Wait a while and return the version to go on from."""
        gone = isinstance(trouble, answer.Gone)
        self._failures += 1
        self._refusals += not isinstance(trouble, answer.Away)
        FAILURES.labels(self._resource, type(trouble).__name__.lower()).inc()
        # One line for an outage, not one for each of its attempts.
        level = logging.DEBUG if trouble.reason == self._last else logging.INFO
        self._last = trouble.reason
        log.log(
            level, "kube.interrupted", extra={"resource": self._resource, "version": version, "reason": trouble.reason}
        )
        # A server that was away may well have forgotten our version; that is no other outage.
        if trouble.lasting or (self._refusals if gone else self._failures) > _PATIENCE:
            # A server that comes back is away in several ways; only the first is reported.
            if not (isinstance(trouble, answer.Away) and isinstance(self._reported, answer.Away)):
                self._reported = trouble
            self._say(self._reported.reason)
        if not gone or self._failures > 1:
            first, longest = _PAUSES
            pause = min(longest, first * 2 ** min(self._failures - 1, 10)) * random.uniform(0.5, 1)  # noqa: S311 # spreads load
            await self._sleep(max(pause, trouble.pause_seconds or 0))
        # A version that the server cannot work with may be refused in other words than Gone.
        return 0 if gone or self._refusals >= _STUCK else version

    def _well(self) -> None:
        self._failures = self._refusals = 0
        self._last = ""

    async def _list(self) -> AsyncGenerator[News, None]:
        """Yield one whole list: in pages, and without if the server forgets the rest of it twice before it is read."""
        for limit in (self._settings.page, self._settings.page, 0):
            try:
                async with aclosing(self._pages(limit)) as pages:
                    async for each in pages:
                        yield each
            except answer.Gone:
                if not limit:
                    raise
                log.info("kube.list_expired", extra={"resource": self._resource})
            else:
                return

    async def _pages(self, limit: int) -> AsyncGenerator[News, None]:
        LISTS.labels(self._resource).inc()
        query = {"limit": str(limit)} if limit else {}
        yield News("listing", 0, {})
        while True:
            async with self._api.get(self._resource, query, silence_seconds=_LIST_SECONDS) as response:
                page = _parsed(await response.read(), "list", self._resource)
            try:
                version, rest = int(page["metadata"]["resourceVersion"]), page["metadata"].get("continue")
                items = [item for item in page.get("items") or () if _version(item)]
            except _MISSHAPEN as error:
                raise answer.Trouble(f"list {self._resource}: the answer is no list: {error!r}") from error
            for item in items:
                yield News("present", version, item)
            if not rest:
                break
            query["continue"] = rest
        self._doubtful = False
        yield News("listed", version, {})

    async def _confirm(self, version: int) -> None:
        """Ask how far the server is; raises Gone where that is before our version, so that no watch hears the rest."""
        async with self._api.get(self._resource, {"limit": "1"}, silence_seconds=_LIST_SECONDS) as response:
            page = _parsed(await response.read(), "list", self._resource)
        try:
            reached = int(page["metadata"]["resourceVersion"])
        except _MISSHAPEN as error:
            raise answer.Trouble(f"list {self._resource}: the answer is no list: {error!r}") from error
        if reached < version:
            raise answer.Gone(f"list {self._resource}: the server went back from {version} to {reached}")
        self._doubtful = False

    async def _watch(self, version: int) -> AsyncGenerator[News, None]:
        """Yield events until the server ends the watch."""
        if self._doubtful:
            await self._confirm(version)
        loop = asyncio.get_running_loop()
        seconds, began, heard = self._settings.watch_seconds, loop.time(), False
        query = {
            "watch": "1",
            "resourceVersion": str(version),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        silence = min(_SILENCE_SECONDS, seconds + min(seconds, _GRACE_SECONDS))
        opened, self._doubtful = 0.0, True
        try:
            async with self._api.get(self._resource, query, silence_seconds=silence) as response:
                opened = loop.time()
                self._say(None)
                self._reported = None
                async with aclosing(self._events(response, version)) as events:
                    async for news in events:
                        heard = True
                        yield news
        except answer.Away:
            # Proxies cut what is quiet for a while, which is no outage.
            if opened and _LASTING_SECONDS <= loop.time() - opened < silence:
                self._well()
            raise
        if not heard and loop.time() - began < min(_BRIEF_SECONDS, seconds / 2):
            raise answer.Trouble(f"watch {self._resource}: the server ends the watch at once")
        self._doubtful = not heard
        self._well()

    async def _events(self, response: aiohttp.ClientResponse, version: int) -> AsyncGenerator[News, None]:
        """Yield the events of one watch behind a version."""
        async with aclosing(_lines(response, self._resource)) as lines:
            async for line in lines:
                news = self._event(line)
                if news.version < version:
                    raise answer.Gone(f"watch {self._resource}: the server went back from {version}")
                version = news.version
                self._well()
                yield news

    def _event(self, line: bytes) -> News:
        event = _parsed(line, "watch", self._resource)
        kind = str(event.get("type"))
        thing: Any = event.get("object")
        EVENTS.labels(self._resource, kind if kind in _MEANING or kind == "ERROR" else "other").inc()
        if kind == "ERROR" and isinstance(thing, dict):
            raise answer.of_status(thing, "watch", self._resource)
        try:
            meaning, version = _MEANING[kind], _version(thing, named=kind != "BOOKMARK")
            return News(meaning, version, thing)
        except _MISSHAPEN as error:
            raise answer.Trouble(f"watch {self._resource}: {line[:200]!r} is no event: {error!r}") from error


def _version(thing: Any, *, named: bool = True) -> int:
    """Return an object's version; raises what `_MISSHAPEN` lists if it lacks what every object has."""
    metadata = thing["metadata"]
    if named and not (isinstance(metadata["name"], str) and isinstance(metadata["uid"], str)):
        raise ValueError("name and uid are texts")
    return int(metadata["resourceVersion"])


async def _lines(response: aiohttp.ClientResponse, resource: str) -> AsyncGenerator[bytes, None]:
    rest = b""
    async for chunk in _chunks(response):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line.strip():
                yield line
        if len(rest) > _LONGEST_LINE:
            raise answer.Trouble(f"watch {resource}: a line has more than {_LONGEST_LINE} bytes")
    if rest.strip():
        raise answer.Away(f"watch {resource}: the stream broke off in the middle of an event")


def _chunks(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    return response.content.iter_any()


def _parsed(text: bytes, verb: str, resource: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise answer.Trouble(f"{verb} {resource}: {text[:200]!r} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise answer.Trouble(f"{verb} {resource}: {text[:200]!r} is no object")
    return content
