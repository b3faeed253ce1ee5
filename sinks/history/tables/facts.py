"""Rows of Kubernetes facts: one for each observed state of a node or a pod."""

import hashlib
from collections.abc import Sequence

import polars as pl

from schemas import codec
from schemas.messages.facts import UNBOUND, NodeFacts, PodFacts
from sinks.history import column
from sinks.history.column import AMOUNTS, TEXTS, Schema

NODE: Schema = {
    "node": pl.String,
    "at_us": pl.Int64,
    "uid": pl.String,
    "version": pl.Int64,
    "deleted": pl.Boolean,
    "created_us": pl.Int64,
    "ready": pl.Boolean,
    "unschedulable": pl.Boolean,
    "allocatable": AMOUNTS,
    "capacity": AMOUNTS,
    "labels": TEXTS,
    "annotations": TEXTS,
    "taints": pl.List(pl.Struct({"key": pl.String, "value": pl.String, "effect": pl.String})),
    "price": pl.Float64,
    "type": pl.String,
    "zone": pl.String,
    "kubelet": pl.String,
}
POD: Schema = {
    "node": pl.String,
    "at_us": pl.Int64,
    "pod": pl.String,
    "namespace": pl.String,
    "name": pl.String,
    "workload": pl.String,
    "kind": pl.String,
    "version": pl.Int64,
    "deleted": pl.Boolean,
    "phase": pl.String,
    "terminating": pl.Boolean,
    "created_us": pl.Int64,
    "scheduled_us": pl.Int64,
    "started_us": pl.Int64,
    "ready_us": pl.Int64,
    "initialization_seconds": pl.Float64,
    "requests": AMOUNTS,
    "limits": AMOUNTS,
    "labels": TEXTS,
    "annotations": TEXTS,
    "owner_kind": pl.String,
    "owner": pl.String,
    "priority": pl.Int64,
    "priority_class": pl.String,
    "qos": pl.String,
    "scheduler": pl.String,
}


def nodes(messages: Sequence[NodeFacts]) -> pl.DataFrame:
    """Return one row per message."""
    return column.frame(
        messages,
        NODE,
        taints=[[(taint.key, taint.value, taint.effect) for taint in message.taints] for message in messages],
    )


def pods(messages: Sequence[PodFacts]) -> pl.DataFrame:
    """Return one row per message; the node of a pod that is bound to none is null."""
    return column.frame(messages, POD, node=[None if message.node == UNBOUND else message.node for message in messages])


def node_identity(message: NodeFacts) -> tuple[object, ...]:
    """Return a key that only copies of one state share, whenever it was read."""
    return message.uid, message.version, message.deleted, _content(message)


def pod_identity(message: PodFacts) -> tuple[object, ...]:
    """Return a key that only copies of one state share, whenever it was read."""
    return message.pod, message.version, message.deleted, _content(message)


def _content(message: NodeFacts | PodFacts) -> bytes:
    """Return a digest of the facts: other settings or another version of the watch make others of the same object."""
    unread = message.model_copy(update={"at_us": 0})
    return hashlib.blake2b(codec.encode(unread), digest_size=16).digest()
