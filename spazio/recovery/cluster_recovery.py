"""Recovers what an earlier run of the cluster watch published: a checkpoint, and the stream after it.

A checkpoint alone is not enough, since the watch may die right after a message. The stream alone is not enough either,
since its messages expire. Together they are exact, whenever the watch was killed.
"""

import asyncio
import contextlib
import itertools
import json
import logging
import time
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from bus import errors, stream, subscription
from bus.client import Client
from bus.folding import resumption
from bus.folding.checkpoint import Checkpoint, Store
from bus.reading import setback
from bus.reading.progress import Received
from bus.reading.reader import Reader
from bus.subscription import Decode, Decoded, Refuse, Subscription
from kube import ledger
from kube.ledger import Ledger
from schemas.messages.facts import NodeFacts, PodFacts
from schemas.settings import Settings
from schemas.subject import Names, token

log = logging.getLogger(__name__)

_NAME = "watch"
_SILENCE_SECONDS = 2.0

Facts = TypeVar("Facts", bound=NodeFacts | PodFacts)

_KINDS: dict[str, type[NodeFacts | PodFacts]] = {"nodefacts": NodeFacts, "podfacts": PodFacts}


class Memory:
    """Saves and restores the ledgers of nodes and pods."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        cluster: str,
        nodes: Ledger[NodeFacts],
        pods: Ledger[PodFacts],
    ) -> None:
        """Describe the state to recover.

        Args:
            client: Connection.
            settings: Prefix, time limits, and the settings that facts depend on.
            cluster: What tells the cluster from others; object versions of another one have no meaning.
            nodes: Ledger of nodes.
            pods: Ledger of pods.
        """
        self._client, self._timeout = client, settings.nats.request_timeout_seconds
        self._names, self._nodes, self._pods = Names(settings.prefix), nodes, pods
        self._origin = {"server": cluster, "form": ledger.FORM, "price_label": settings.kube.price_label}
        self._store = Store(client, self._names.checkpoints, timeout_seconds=self._timeout)
        self._stream = ""

    async def load(self) -> list[NodeFacts | PodFacts]:
        """Fill the ledgers with the published facts, and set the versions from which to continue.

        Returns:
            Facts to write to the buckets, so that they match the published ones.

        Raises:
            BusError: The server does not answer, or the connection broke; also TimeoutError. Call again.
        """
        telemetry = await stream.describe(self._client, self._names.telemetry)
        self._stream = telemetry.identity
        # The ledger may have facts that the server has lost since: then an older checkpoint is used, or none.
        usable = partial(resumption.kept, self._client, _NAME, telemetry, timeout_seconds=self._timeout)
        checkpoint = await self._store.load(_NAME, telemetry.identity, usable)
        if checkpoint is not None:
            self._restore(checkpoint.body)
        after = 0 if checkpoint is None else checkpoint.sequence
        subjects = [self._names.part("*", kind) for kind in _KINDS]
        reader = Reader(self._client, self._names.telemetry, subjects, after=after, timeout_seconds=self._timeout)
        await self._read(reader, subjects, subscription.by_kind(_KINDS), _foreign, self._take)
        wanted = await self._compare()
        log.info(
            "watch.recalled",
            extra={
                "nodes": len(self._nodes),
                "pods": len(self._pods),
                "node_version": self._nodes.version,
                "pod_version": self._pods.version,
                "repaired": len(wanted),
            },
        )
        return wanted

    def snapshot(self) -> bytearray:
        """Return the ledgers as bytes, line by line into one buffer: of 150,000 pods they are 70 MB."""
        head = self._origin | {"versions": [self._nodes.version, self._pods.version]}
        lines = bytearray(json.dumps(head).encode())
        for line in itertools.chain(self._nodes.dump(), self._pods.dump()):
            lines += b"\n"
            lines += line
        return lines

    async def save(self, snapshot: bytearray) -> None:
        """Write a snapshot; all its facts are stored, and no others were in flight.

        A failure is logged and harmless: the next recovery reads more of the stream.
        """
        try:
            covered = await setback.last(self._client, self._names.telemetry, self._timeout)
            body = await asyncio.to_thread(zlib.compress, snapshot, 1)
            await self._store.save(_NAME, Checkpoint(self._stream, covered.sequence, body, covered.stored_us))
        except errors.REQUEST_FAILED as error:
            log.warning("checkpoint.save_failed", extra={"reason": repr(error)})

    def _restore(self, body: bytes) -> None:
        try:
            first, *lines = zlib.decompress(body).split(b"\n")
            head: dict[str, Any] = json.loads(first)
            if head["form"] != ledger.FORM:
                log.info("watch.form_changed", extra={"from": head["form"], "to": ledger.FORM})
                return
            for line in lines:
                resource, _, rest = line.partition(b" ")
                (self._nodes if resource == b"nodes" else self._pods).load(rest)
            if {name: head[name] for name in self._origin} == self._origin:
                self._nodes.version, self._pods.version = head["versions"]
            else:
                log.info("watch.origin_changed", extra={"server": self._origin["server"]})
        except (zlib.error, ValueError, KeyError, TypeError) as error:
            log.warning("checkpoint.restore_failed", extra={"reason": repr(error)})

    async def _compare(self) -> list[NodeFacts | PodFacts]:
        """Compare the buckets with the ledgers; buckets outlive the stream."""
        nodes = await self._copies(self._names.nodes_bucket, NodeFacts)
        pods = await self._copies(self._names.pods_bucket, PodFacts)
        at_us = time.time_ns() // 1000
        return [*self._nodes.repair(nodes, at_us), *self._pods.repair(pods, at_us)]

    async def _copies(self, bucket: str, kind: type[Facts]) -> list[Facts]:
        name, subjects = f"KV_{bucket}", [f"$KV.{bucket}.>"]
        reader = Reader(self._client, name, subjects, newest=True, timeout_seconds=self._timeout)
        copies: list[Facts] = []

        def take(received: Decoded[Facts]) -> None:
            copy = received.message
            if received.subject == f"$KV.{bucket}.{key(copy)}" and not copy.deleted:
                copies.append(copy)

        # The marker of a deleted key is empty, and therefore refused.
        await self._read(reader, subjects, subscription.of(kind, by_node=False), subscription.ignore, take)
        return copies

    async def _read(
        self,
        reader: Reader,
        subjects: Sequence[str],
        decode: Decode[Facts],
        refuse: Refuse,
        take: Callable[[Decoded[Facts]], None],
    ) -> None:
        """Pass all messages that a stream holds now to `take`."""
        async with Subscription(reader, decode, refuse) as facts:
            while facts.position < (last := await self._last(reader.stream, subjects)):
                batch = await facts.read(timeout_seconds=_SILENCE_SECONDS)
                for received in batch.messages:
                    take(received)
                if not batch.received and not batch.pending and last == await self._last(reader.stream, subjects):
                    break  # the last message has been removed since

    def _take(self, received: Decoded[NodeFacts | PodFacts]) -> None:
        if isinstance(received.message, NodeFacts):
            self._nodes.restore(received.message)
        else:
            self._pods.restore(received.message)

    async def _last(self, name: str, subjects: Sequence[str]) -> int:
        """Return the highest sequence of any of the subjects."""
        last = 0
        for subject in subjects:
            with contextlib.suppress(errors.NotFound):
                last = max(last, (await stream.newest(self._client, name, subject, self._timeout)).sequence)
        return last


def key(facts: NodeFacts | PodFacts) -> str:
    """Return the key of an object in its bucket."""
    return token(facts.node if isinstance(facts, NodeFacts) else facts.pod)


async def _foreign(message: Received, reason: str) -> None:
    log.warning("facts.refused", extra={"subject": message.subject, "reason": reason})
