"""What a stream does with a published message: check, store, acknowledge, alone or in an atomic batch."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.support.nats import refusal
from tests.support.nats.jetstream.log import Log
from tests.support.nats.message import Stored, fields, lifetime_seconds
from tests.support.nats.refusal import Refused
from tests.support.nats.subject import Transform

_MOST_IN_BATCH = 1000
_MOST_BATCHES = 50
_LONGEST_BATCH_NAME = 64
_BATCH_SECONDS = 10.0
_LAST_OF_SUBJECT = "Nats-Expected-Last-Subject-Sequence"


class _Post(NamedTuple):
    """A message that has been read but not stored; `wire` is its header block as it came."""

    subject: str
    headers: Mapping[str, str]
    wire: bytes
    data: bytes


class _Batch:
    """Messages of a batch that is not committed yet."""

    def __init__(self) -> None:
        self.posts: list[_Post] = []
        self.touched = 0.0


class Intake:
    """The writing side of one stream."""

    def __init__(self, name: str, log: Log) -> None:
        self._name, self._log = name, log
        self._config: Mapping[str, Any] = {}
        self._transform: Transform | None = None
        self._identities: dict[str, tuple[int, int]] = {}
        self._batches: dict[str, _Batch] = {}

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take over a configuration."""
        self._config = config
        given = config.get("subject_transform")
        self._transform = Transform(given["src"], given["dest"]) if given else None

    def forget_batches(self) -> None:
        """Drop what is not committed, as the death of the server does."""
        self._batches.clear()

    def take(self, subject: str, wire: bytes, data: bytes, now_ns: int) -> bytes:
        """Store a message, or put it aside until its batch is whole.

        Args:
            subject: As published.
            wire: Header block as it came; empty: none.
            data: Payload.
            now_ns: The time.

        Returns:
            What the publisher is answered.
        """
        post = _Post(self._transform(subject) if self._transform else subject, fields(wire), wire, data)
        try:
            if (batch := post.headers.get("Nats-Batch-Id")) is not None:
                return self._take_part(batch, post, now_ns)
            return self._take_alone(post, now_ns)
        except Refused as refused:
            return json.dumps({"error": refused.error, "stream": self._name, "seq": 0}).encode()

    def _take_alone(self, post: _Post, now_ns: int) -> bytes:
        identity = post.headers.get("Nats-Msg-Id")
        self._check_stream(post)
        if identity and (sequence := self._sequence_of(identity, now_ns)):
            return b'{"stream":"%s","seq":%d,"duplicate": true}' % (self._name.encode(), sequence)
        self._check(post, [])
        self._check_room(post)
        stored = self._store(post, now_ns)
        return b'{"stream":"%s","seq":%d}' % (self._name.encode(), stored.sequence)

    def _take_part(self, name: str, post: _Post, now_ns: int) -> bytes:
        batch, number, commit = self._batch(name, post)
        batch.posts.append(post)
        if commit is None:
            return b""
        del self._batches[name]
        if commit not in ("1", "eob"):
            raise Refused(400, 10200, "atomic publish batch commit is invalid")
        posts = batch.posts[:-1] if commit == "eob" else batch.posts
        for index, each in enumerate(posts):
            self._check_in_batch(each, posts[:index], now_ns)
        for each in posts:
            stored = self._store(each, now_ns)
        answer = {"stream": self._name, "seq": stored.sequence, "batch": name, "count": number - (commit == "eob")}
        return json.dumps(answer).encode()

    def _batch(self, name: str, post: _Post) -> tuple[_Batch, int, str | None]:
        """Return the batch that a message belongs to, its number in it, and what its commit header says."""
        if not self._config["allow_atomic"]:
            raise Refused(400, 10174, "atomic publish is disabled")
        if len(name) > _LONGEST_BATCH_NAME:
            raise Refused(400, 10179, "atomic publish batch ID is invalid")
        number = int(post.headers.get("Nats-Batch-Sequence", "0"))
        if not number:
            raise Refused(400, 10175, "atomic publish sequence is missing")
        now = asyncio.get_running_loop().time()
        for idle in [key for key, each in self._batches.items() if now - each.touched > _BATCH_SECONDS]:
            del self._batches[idle]
        if number == 1 and name not in self._batches:
            if len(self._batches) >= _MOST_BATCHES:
                raise Refused(429, 10210, "atomic publish too many inflight")
            self._batches[name] = _Batch()
        batch = self._batches.get(name)
        if number > _MOST_IN_BATCH:
            self._batches.pop(name, None)
            raise Refused(400, 10199, f"atomic publish batch is too large: {_MOST_IN_BATCH}")
        if batch is None or number != len(batch.posts) + 1:
            self._batches.pop(name, None)
            raise Refused(400, 10176, "atomic publish batch is incomplete")
        batch.touched = now
        return batch, number, post.headers.get("Nats-Batch-Commit")

    def _check_in_batch(self, post: _Post, before: list[_Post], now_ns: int) -> None:
        self._check_stream(post)
        if "Nats-Expected-Last-Msg-Id" in post.headers:
            raise Refused(400, 10177, "atomic publish unsupported header used: Nats-Expected-Last-Msg-Id")
        identity = post.headers.get("Nats-Msg-Id")
        if identity and (
            self._sequence_of(identity, now_ns) or any(each.headers.get("Nats-Msg-Id") == identity for each in before)
        ):
            raise Refused(400, 10201, "atomic publish batch contains duplicate message id")
        self._check(post, before)
        self._check_room(post)

    def _check_stream(self, post: _Post) -> None:
        if post.headers.get("Nats-Expected-Stream", self._name) != self._name:
            raise Refused(400, 10060, "expected stream does not match")

    def _check(self, post: _Post, before: list[_Post]) -> None:
        """Raise if the stream is not as the message expects, `before` being what its batch writes first."""
        headers = post.headers
        if "Nats-TTL" in headers:
            if not self._config["allow_msg_ttl"]:
                raise Refused(400, 10166, "per-message TTL is disabled")
            lifetime_seconds(headers["Nats-TTL"])
        if (expected := headers.get(_LAST_OF_SUBJECT)) is not None:
            if any(each.subject == post.subject for each in before):
                raise Refused(400, 10164, "wrong last sequence")
            newest = self._log.newest(post.subject)
            present = newest.sequence if newest else 0
            if int(expected) != present:
                raise refusal.wrong_last_sequence(present)
        expected = headers.get("Nats-Expected-Last-Sequence")
        if expected is not None and int(expected) != self._log.last + len(before):
            raise refusal.wrong_last_sequence(self._log.last + len(before))
        self._check_identity(headers)
        self._check_rollup(headers)

    def _check_identity(self, headers: Mapping[str, str]) -> None:
        expected = headers.get("Nats-Expected-Last-Msg-Id")
        present = next(reversed(self._identities), "")
        if expected is not None and expected != present:
            raise Refused(400, 10070, f"wrong last msg ID: {present}")

    def _check_rollup(self, headers: Mapping[str, str]) -> None:
        rollup = headers.get("Nats-Rollup")
        if rollup is None:
            return
        if not self._config["allow_rollup_hdrs"]:
            raise Refused(500, 10111, "rollup not permitted")
        if rollup not in ("sub", "all"):
            raise Refused(500, 10111, f'rollup value invalid: "{rollup}"')

    def _check_room(self, post: _Post) -> None:
        largest = self._config["max_msg_size"]
        if 0 <= largest < len(post.wire) + len(post.data):
            raise Refused(400, 10054, "message size exceeds maximum allowed")
        if self._config["discard"] != "new":
            return
        size = Stored(post.subject, 0, 0, post.wire, post.data).size
        if 0 < self._config["max_bytes"] < self._log.bytes + size:
            raise Refused(503, 10077, "maximum bytes exceeded")
        if 0 < self._config["max_msgs"] <= len(self._log):
            raise Refused(503, 10077, "maximum messages exceeded")

    def _store(self, post: _Post, now_ns: int) -> Stored:
        lifetime = lifetime_seconds(post.headers["Nats-TTL"]) if "Nats-TTL" in post.headers else 0
        stored = self._log.append(post.subject, post.wire, post.data, lifetime)
        if identity := post.headers.get("Nats-Msg-Id"):
            self._identities[identity] = stored.sequence, now_ns
        if rollup := post.headers.get("Nats-Rollup"):
            self._log.purge(post.subject if rollup == "sub" else ">", below=stored.sequence, keep=0)
        return stored

    def _sequence_of(self, identity: str, now_ns: int) -> int:
        """Return the sequence of the message that had this identity within the duplicate window; 0: none."""
        window = self._config["duplicate_window"]
        while self._identities:
            oldest, (_, at_ns) = next(iter(self._identities.items()))
            if now_ns - at_ns <= window:
                break
            del self._identities[oldest]
        return self._identities.get(identity, (0, 0))[0]
