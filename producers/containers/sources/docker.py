"""Containers of a Docker daemon, by the Docker Engine API.

The source requests events from a time before the first listing, so that no event is lost between the two. The path
has no version: the daemon answers in its newest one, and the fields that the source reads are unchanged since 1.22.
Each event has the daemon's wall-clock time, which the source converts to time since boot.

Access to the socket is equivalent to root. `create` comes well before the first instruction of a container, `start`
shortly after it, `die` some 50 ms after its end; a restarted container sends only `start`.
"""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from producers import clock as grid
from producers.containers import label
from producers.containers.sources.damage import Damage
from producers.containers.sources.source import Event, Identity, Observation, Sink
from producers.containers.wire import request
from producers.containers.wire.response import Lines

_ANSWER_SECONDS = 5.0  # a loaded daemon lists hundreds of containers in one
_LIST_SECONDS = 30.0  # a listing costs the daemon some milliseconds a container; an open connection loses no events
_LONGEST_LINE = 1 << 20
_LONGEST_LIST = 64 << 20
_EVENTS: Mapping[str, Event] = {"create": "created", "start": "started", "die": "exited", "destroy": "deleted"}
_RUNNING = ("running", "paused")
_FILTER = quote(json.dumps({"type": ["container"], "event": list(_EVENTS)}))


class Docker:
    """Follows one daemon.

    Args:
        socket: Its Unix socket.
        clock: Time since boot and time of day.
        list_seconds: Time between listings.
    """

    name = "docker"

    def __init__(self, socket: Path, *, clock: grid.Clock | None = None, list_seconds: float = _LIST_SECONDS) -> None:
        self._socket, self._clock, self._list_seconds = socket, clock or grid.System(), list_seconds
        self._damage, self._classes = Damage(self.name), label.Classes()

    async def run(self, sink: Sink) -> None:
        """Follow until cancelled.

        Raises:
            OSError: The socket is missing or not permitted, or the daemon has ended or hangs.
            ValueError: The peer is not such a daemon.
        """
        loop, lines = asyncio.get_running_loop(), Lines(_LONGEST_LINE)
        asked, earliest = self._clock.realtime(), self._clock.boottime()
        async with request.get(self._socket, events_since(asked), timeout_seconds=_ANSWER_SECONDS) as events:
            await self._list(sink)
            due = loop.time() + self._list_seconds
            while True:
                try:
                    async with asyncio.timeout_at(due):
                        data = await events.read()
                except TimeoutError:
                    await self._list(sink)
                    due = loop.time() + self._list_seconds
                    continue
                if not data:
                    raise ConnectionResetError(f"{self._socket} has ended the stream of events")
                for line in lines.feed(data):
                    self._take(line, earliest, sink)

    async def _list(self, sink: Sink) -> None:
        # The time before the request: an event that is not yet in the answer must not look older than the answer.
        boottime_us = self._clock.boottime() // 1000
        body = await request.fetch(
            self._socket, "/containers/json?all=1", timeout_seconds=_ANSWER_SECONDS, longest=_LONGEST_LIST
        )
        entries, rows = json.loads(body), list[label.Row]()
        if not isinstance(entries, list):
            raise ValueError(f"{self._socket} lists no containers but {body[:40]!r}")  # noqa: TRY004 - bytes, not a type
        for entry in entries:
            try:
                rows.append(parse_row(entry))
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                self._damage.count(f"in the list: {error!r}")
        listed = self._classes.listing(rows)
        sink.present(self.name, listed, boottime_us)

    def _take(self, line: bytes | None, earliest: int, sink: Sink) -> None:
        if line is None:
            return self._damage.count(f"an event of more than {_LONGEST_LINE} bytes")
        try:
            parsed = parse_event(line)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            return self._damage.count(f"{error!r} in {line[:200]!r}")
        if parsed is None:
            return None
        event, identity, labels, wall = parsed
        boottime_us = grid.boottime_of(wall, self._clock, earliest=earliest) // 1000
        return sink.observe(Observation(self.name, event, self._classes.apply(identity, labels), boottime_us))


def events_since(realtime: int) -> str:
    """Return the target of all events since a time in nanoseconds since the Unix epoch."""
    seconds, nanoseconds = divmod(realtime, grid.SECOND)
    return f"/events?since={seconds}.{nanoseconds:09d}&filters={_FILTER}"


def parse_event(line: bytes) -> tuple[Event, Identity, Mapping[str, object], int] | None:
    """Return event, identity, labels and time in nanoseconds since the Unix epoch; None: irrelevant.

    Raises:
        ValueError: The line is not an event; also LookupError, TypeError, AttributeError.
    """
    fields = json.loads(line)
    if fields.get("Type") != "container" or fields["Action"] not in _EVENTS:
        return None
    actor = fields["Actor"]
    attributes: Mapping[str, object] = actor.get("Attributes") or {}
    name, image = attributes.get("name"), attributes.get("image")
    identity = label.identity(_id(actor["ID"]), attributes, name=name, image=image)
    wall = fields["timeNano"]
    if not isinstance(wall, int):
        raise TypeError(f"timeNano {wall!r}")
    return _EVENTS[fields["Action"]], identity, attributes, wall


def parse_row(row: Mapping[str, object]) -> label.Row:
    """Return the identity of a listed container, its labels, and whether it runs.

    Raises:
        ValueError: It is not a container; also LookupError, TypeError, AttributeError.
    """
    labels, names = row.get("Labels") or {}, row.get("Names") or []
    if not isinstance(labels, Mapping) or not isinstance(names, list):
        raise TypeError(f"labels {labels!r}, names {names!r}")
    name = names[0].removeprefix("/") if names else None
    return label.identity(_id(row["Id"]), labels, name=name, image=row.get("Image")), labels, row["State"] in _RUNNING


def _id(value: object) -> str:
    container = label.text(value)
    if container is None:
        raise ValueError(f"no id of a container: {value!r}")
    return container
