"""One stream: its configuration, its messages, its consumers."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tests.support.nats import refusal
from tests.support.nats.jetstream.consumer import Consumer, Post
from tests.support.nats.jetstream.intake import Intake
from tests.support.nats.jetstream.log import Log
from tests.support.nats.message import Stored
from tests.support.nats.refusal import Refused

_DEFAULTS: dict[str, Any] = {
    "retention": "limits",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "discard": "old",
    "storage": "file",
    "num_replicas": 1,
    "duplicate_window": 120 * 10**9,
    "compression": "none",
    "allow_direct": False,
    "mirror_direct": False,
    "sealed": False,
    "deny_delete": False,
    "deny_purge": False,
    "allow_rollup_hdrs": False,
    "consumer_limits": {},
    "allow_msg_ttl": False,
    "allow_atomic": False,
}
_OTHERS = {"name", "description", "subjects", "subject_transform", "metadata", "no_ack", "allow_msg_counter"}
_UNLIMITED = ("max_msgs", "max_bytes", "max_msgs_per_subject", "max_msg_size", "max_consumers")


def complete(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with the server's defaults.

    Raises:
        Refused: It has a field that is unknown or not imitated.
    """
    for name, value in given.items():
        if name not in _DEFAULTS and name not in _OTHERS and value:
            raise refusal.not_json(f'json: unknown field "{name}"')
    config = {name: value for name, value in given.items() if value is not None and (name in _DEFAULTS or value)}
    config = _DEFAULTS | config
    for name in _UNLIMITED:
        config[name] = config[name] or -1
    if not config["duplicate_window"]:
        config["duplicate_window"] = _DEFAULTS["duplicate_window"]
    if 0 < config["max_age"] < config["duplicate_window"]:
        if given.get("duplicate_window"):
            raise Refused(500, 10052, "duplicates window can not be larger then max age")
        config["duplicate_window"] = config["max_age"]
    config["subjects"] = config.get("subjects") or [config["name"]]
    return config


class Stream:
    """A stream and what belongs to it."""

    def __init__(self, config: dict[str, Any], post: Post) -> None:
        self.name: str = config["name"]
        self.created_ns = post.now_ns()
        self.consumers: dict[str, Consumer] = {}
        self._post = post
        self.log = Log(post.now_ns, self._removed)
        self._intake = Intake(self.name, self.log)
        self.config: dict[str, Any] = {}
        self.configure(config)

    def configure(self, config: dict[str, Any]) -> None:
        """Take over a configuration.

        Raises:
            Refused: It cannot follow the present one.
        """
        if self.config.get("allow_msg_ttl") and not config["allow_msg_ttl"]:
            raise Refused(500, 10052, "message TTL status can not be disabled")
        try:
            self._intake.configure(config)
        except ValueError as error:
            raise Refused(500, 10052, str(error)) from error
        self.config = config
        self.log.configure(config)

    def publish(self, subject: str, reply: str, headers: bytes, data: bytes) -> None:
        """Take a message, answer its publisher, and deliver what has become deliverable."""
        self.log.expire()
        before = self.log.last
        answer = self._intake.take(subject, headers, data, self._post.now_ns())
        for sequence in range(before + 1, self.log.last + 1):
            if (message := self.log.get(sequence)) is not None:
                for consumer in self.consumers.values():
                    consumer.stored(message)
        if reply:
            self._post.deliver(reply, reply, "", b"", answer)
        if self.log.last > before:
            for consumer in list(self.consumers.values()):
                if len(consumer.queue):
                    consumer.pump()

    def _removed(self, message: Stored) -> None:
        for consumer in self.consumers.values():
            consumer.removed(message)

    def crash(self) -> None:
        """Lose what is not storage: open batches, requests, pins, and consumers kept in memory."""
        self._intake.forget_batches()
        for name, consumer in list(self.consumers.items()):
            consumer.suspend()
            if consumer.config.get("mem_storage"):
                del self.consumers[name]

    def info(self, subjects: str = "") -> dict[str, Any]:
        """Return what the server tells of a stream, and the counts of matching subjects, if some are asked for."""
        self.log.expire()
        first = self.log.get(self.log.first)
        state: dict[str, Any] = {
            "messages": len(self.log),
            "bytes": self.log.bytes,
            "first_seq": self.log.first,
            "first_ts": instant(first.at_ns if first else 0),
            "last_seq": self.log.last,
            "last_ts": instant(self.log.last_ns),
            "num_subjects": len(self.log.counts),
            "consumer_count": len(self.consumers),
        }
        if subjects:
            state["subjects"] = self.log.counted(subjects)
        return {
            "config": self.config,
            "created": instant(self.created_ns),
            "state": state,
            "ts": instant(self._post.now_ns()),
        }


def instant(at_ns: int) -> str:
    """Return nanoseconds since the epoch as the server writes times; 0 is its zero time."""
    if not at_ns:
        return "0001-01-01T00:00:00Z"
    seconds, rest = divmod(at_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
