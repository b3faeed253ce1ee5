"""Consumers as the server's JSON interface shows them: their configuration, their state, who may change them."""

from typing import Any

from tests.support.nats import refusal
from tests.support.nats.jetstream.consumer import Consumer, Post
from tests.support.nats.jetstream.stream import Stream, instant
from tests.support.nats.refusal import Refused

_FIELDS = {
    "name",
    "durable_name",
    "description",
    "deliver_policy",
    "opt_start_seq",
    "ack_policy",
    "ack_wait",
    "max_deliver",
    "filter_subject",
    "filter_subjects",
    "replay_policy",
    "max_waiting",
    "max_ack_pending",
    "inactive_threshold",
    "num_replicas",
    "mem_storage",
    "metadata",
    "priority_groups",
    "priority_policy",
    "priority_timeout",
}
_FIXED = {"deliver_policy": "deliver policy", "opt_start_seq": "start sequence", "ack_policy": "ack policy"}
_EPHEMERAL_NS = 5 * 10**9
_ACK_WAIT_NS = 30 * 10**9
_PIN_NS = 2 * 60 * 10**9


def create(stream: Stream, request: dict[str, Any], name: str, post: Post) -> dict[str, Any]:
    """Make a consumer, or find the one of that name, and describe it.

    Args:
        stream: Where.
        request: Body of the request.
        name: Name from the request's subject; empty: the server chooses one.
        post: Way to clients.

    Raises:
        Refused: The configuration is wrong, not imitated, or not that of the present consumer.
    """
    config = _complete(request.get("config", {}), name or post.new_identity()[-8:])
    present = stream.consumers.get(config["name"])
    if present is not None:
        if request.get("action") == "create" and present.config != config:
            raise Refused(400, 10148, "consumer already exists")
        for field, words in _FIXED.items():
            if present.config.get(field) != config.get(field):
                raise Refused(500, 10012, f"{words} can not be updated")
        if present.config != config:
            raise Refused(500, 10012, "changing a consumer is not imitated")
        return describe(present, post)
    if request.get("action") == "update":
        raise Refused(400, 10149, "consumer does not exist")

    def forget() -> None:
        delete(stream, config["name"])

    stream.log.expire()
    consumer = Consumer(stream.name, config, stream.log, post, forget)
    stream.consumers[consumer.name] = consumer
    return describe(consumer, post)


def _complete(given: dict[str, Any], name: str) -> dict[str, Any]:
    for field, value in given.items():
        if field not in _FIELDS and value:
            raise refusal.not_json(f'json: unknown field "{field}"')
    config: dict[str, Any] = {key: value for key, value in given.items() if value not in (None, "", 0, [], False)}
    config = {
        "name": name,
        "deliver_policy": "all",
        "ack_policy": "none",
        "max_deliver": -1,
        "replay_policy": "instant",
        "max_waiting": 512,
    } | config
    config["num_replicas"] = 0
    config["name"] = name
    if config["ack_policy"] != "none":
        config.setdefault("ack_wait", _ACK_WAIT_NS)
        config.setdefault("max_ack_pending", 1000)
    if "durable_name" not in config:
        config.setdefault("inactive_threshold", _EPHEMERAL_NS)
    if config["max_deliver"] != -1 or config["replay_policy"] != "instant":
        raise Refused(500, 10012, "max_deliver and replay_policy are not imitated")
    if config["deliver_policy"] == "last_per_subject" and not config.keys() & {"filter_subject", "filter_subjects"}:
        words = "consumer delivery policy is deliver last per subject, but optional filter subject is not set"
        raise Refused(400, 10094, words)
    _check_groups(config)
    return config


def _check_groups(config: dict[str, Any]) -> None:
    policy = config.get("priority_policy", "none")
    if policy == "none":
        if config.get("priority_groups"):
            raise Refused(400, 10159, "Setting PriorityPolicy requires at least one PriorityGroup to be set")
        return
    if policy != "pinned_client":
        raise Refused(500, 10012, f"priority policy {policy} is not imitated")
    if not config.get("priority_groups"):
        raise Refused(400, 10159, "Setting PriorityPolicy requires at least one PriorityGroup to be set")
    config.setdefault("priority_timeout", _PIN_NS)


def find(stream: Stream, name: str) -> Consumer:
    """Return a consumer.

    Raises:
        Refused: There is none of that name.
    """
    try:
        return stream.consumers[name]
    except KeyError:
        raise refusal.no_consumer() from None


def delete(stream: Stream, name: str) -> None:
    """End a consumer.

    Raises:
        Refused: There is none of that name.
    """
    find(stream, name)
    stream.consumers.pop(name).close("409 Consumer Deleted")


def describe(consumer: Consumer, post: Post) -> dict[str, Any]:
    """Return what the server tells of a consumer."""
    number, sequence = consumer.delivered
    answer: dict[str, Any] = {
        "stream_name": consumer.stream,
        "name": consumer.name,
        "created": instant(consumer.created_ns),
        "config": consumer.config,
        "delivered": {"consumer_seq": number, "stream_seq": sequence},
        "ack_floor": {
            "consumer_seq": consumer.pending.floor_number,
            "stream_seq": consumer.pending.floor_sequence,
        },
        "num_ack_pending": len(consumer.pending),
        "num_redelivered": consumer.pending.redelivered,
        "num_waiting": len(consumer.queue),
        "num_pending": max(0, consumer.left),
        "ts": instant(post.now_ns()),
    }
    if consumer.pin.groups:
        group = {"group": consumer.pin.groups[0], "pinned_ts": instant(consumer.pin.since_ns)}
        if consumer.pin.identity:
            group["pinned_client_id"] = consumer.pin.identity
        answer["priority_groups"] = [group]
    return answer
