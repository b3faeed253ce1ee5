"""Whether a stream still has what a reader has read: a server may come back with less than it had.

After a loss of power a server lacks what it acknowledged since it last synced its files. It gives the same sequences to
other messages, so a sequence alone does not tell whether a message was read. Together with the time at which the server
stored it, it does. A reader that notices continues behind what the stream kept of the messages it had read: every
message stored since then is read once. This relies on one thing: the server's clock is not set back by more than the
time for which the server was away.
"""

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import nats.errors
from nats.aio.client import Client
from prometheus_client import Counter

from bus import api

_NO_MESSAGE = "404"
_SAME_SECONDS = 60.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

SET_BACK = Counter(
    "spazio_stream_set_back_total",
    "times that a service noticed that its stream came back without messages that it had read or published",
    ["stream"],
)


_noticed: dict[tuple[str, int], float] = {}  # where streams were cut off, and when this process last noticed it


class Mark(NamedTuple):
    """A message that was read: its stream sequence, and when the server stored it, in microseconds; 0: not known."""

    sequence: int
    stored_us: int = 0


class SetBack(nats.errors.Error):
    """The server came back with less than it had.

    Attributes:
        read: The last message that was read before.
        kept: The last message before it that the stream still has.
    """

    def __init__(self, stream: str, read: Mark, kept: Mark) -> None:
        super().__init__(
            f"stream {stream} came back without messages {kept.sequence + 1} to {read.sequence}, which were read; "
            "what was stored since is read from there"
        )
        self.read, self.kept = read, kept


async def check(client: Client, stream: str, read: Mark, timeout_seconds: float) -> None:
    """Check that a stream still has what was read, or had it before it expired.

    Args:
        client: Connection.
        stream: Name of the stream.
        read: The last message that was read. If its time is not known, only its sequence is compared with the last.
        timeout_seconds: Time limit for each request to the server.

    Raises:
        SetBack: It has not.
        nats.errors.Error: The server did not answer; also TimeoutError.
    """
    if not read.sequence:
        return
    stored = None
    if read.stored_us:
        stored = await _next(client, stream, read.sequence, timeout_seconds)
        if stored == read:
            return
    state = await _state(client, stream, timeout_seconds)
    first, last = int(state["first_seq"]), int(state["last_seq"])
    if read.sequence < first and read.sequence <= last:
        return  # it expired, and all that follows is new
    if not read.stored_us:
        kept = Mark(last)
    else:
        kept = await _last_until(client, stream, (first, last), read.stored_us, timeout_seconds)
        if stored is not None and stored.sequence == read.sequence:
            kept = min(kept, Mark(read.sequence - 1))  # another message has its sequence, even if clocks disagree
    if kept.sequence < read.sequence:
        _count(stream, kept.sequence)
        raise SetBack(stream, read, kept)


def _count(stream: str, kept: int) -> None:
    """Count what a service notices, once: each of its readers, cursors and checkpoints of the stream shows it.

    All of them show the same end of what was kept, within a minute of each other. A cursor may show it for hours.
    """
    now = time.monotonic()
    for each in [each for each, at in _noticed.items() if now - at > _SAME_SECONDS]:
        del _noticed[each]
    if (stream, kept) not in _noticed:
        SET_BACK.labels(stream).inc()
    _noticed[stream, kept] = now


async def last(client: Client, stream: str, timeout_seconds: float) -> Mark:
    """Return the last message that a stream has stored, from its leader.

    Args:
        client: Connection.
        stream: Name of the stream.
        timeout_seconds: Time limit for the request.

    Raises:
        nats.errors.Error: The server did not answer; also TimeoutError.
    """
    state = await _state(client, stream, timeout_seconds)
    sequence = int(state["last_seq"])
    return Mark(sequence, _microseconds(state["last_ts"])) if sequence else Mark(0)


async def _state(client: Client, stream: str, timeout_seconds: float) -> dict[str, Any]:
    """Return the state of a stream, from its leader."""
    state: dict[str, Any] = (await api.request(client, f"STREAM.INFO.{stream}", {}, timeout_seconds))["state"]
    return state


async def before_end(client: Client, stream: str, after: Mark, seconds: float, timeout_seconds: float) -> Mark | None:
    """Return a message about so many seconds before the last one of a stream; None: there is none after a mark.

    Args:
        client: Connection.
        stream: Name of the stream.
        after: A message that was read, with its time. The messages since then are taken to be equally far apart.
        seconds: Time between the two by the server's clock.
        timeout_seconds: Time limit for each request to the server.

    Raises:
        nats.errors.Error: The server did not answer; also TimeoutError.
    """
    state = await _state(client, stream, timeout_seconds)
    behind = (_microseconds(state["last_ts"]) - after.stored_us) / 1e6
    if not after.stored_us or behind <= seconds:
        return None
    passed = int((int(state["last_seq"]) - after.sequence) * (1 - seconds / behind))
    return None if passed <= 0 else await _next(client, stream, after.sequence + passed, timeout_seconds)


async def last_until(client: Client, stream: str, until_us: int, timeout_seconds: float) -> int:
    """Return the sequence of the last message that a stream stored up to a time, as far as it still has messages.

    Args:
        client: Connection.
        stream: Name of the stream.
        until_us: Time in microseconds since the epoch.
        timeout_seconds: Time limit for each request to the server.

    Raises:
        nats.errors.Error: The server did not answer; also TimeoutError.
    """
    state = await _state(client, stream, timeout_seconds)
    ends = int(state["first_seq"]), int(state["last_seq"])
    return (await _last_until(client, stream, ends, until_us, timeout_seconds)).sequence


async def _last_until(
    client: Client, stream: str, ends: tuple[int, int], until_us: int, timeout_seconds: float
) -> Mark:
    """Search between the first and the last sequence; the number of requests is the logarithm of their distance.

    Returns:
        The sequence before the first message that was stored later; messages up to it may be missing, as in a bucket.
    """
    last, begin, end, later = Mark(0), ends[0], ends[1] + 1, ends[1] + 1
    while begin < end:
        middle = (begin + end) // 2
        after = await _next(client, stream, middle, timeout_seconds)
        if after is None or after.stored_us > until_us:
            end, later = middle, after.sequence if after else later
        else:
            last, begin = after, after.sequence + 1
    return last if last.sequence == later - 1 else Mark(later - 1)


async def _next(client: Client, stream: str, sequence: int, timeout_seconds: float) -> Mark | None:
    """Return the first message from a sequence on; None: there is none.

    Every role that may read a stream may ask so. Any server that has the stream answers, also one that lags behind, so
    what is missing there is no evidence.
    """
    request = json.dumps({"seq": sequence, "next_by_subj": ">"}).encode()
    answer = await client.request(f"$JS.API.DIRECT.GET.{stream}", request, timeout=timeout_seconds)
    headers = answer.headers or {}
    if "Nats-Sequence" not in headers:
        if headers.get("Status") == _NO_MESSAGE:
            return None
        raise nats.errors.Error(f"stream {stream} does not say what it has at {sequence}: {headers}")
    return Mark(int(headers["Nats-Sequence"]), _microseconds(headers["Nats-Time-Stamp"]))


def _microseconds(time: str) -> int:
    """Return a time of the server, as it writes it, in microseconds since the epoch."""
    return (datetime.fromisoformat(time) - _EPOCH) // timedelta(microseconds=1)
