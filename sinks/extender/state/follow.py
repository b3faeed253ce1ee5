"""How the board learns: buckets and streams read in order by the bus's own reader, a little at a time.

Everything known is read before the first question is answered. After that each message is taken as it comes, in small
parts, so that a question does not wait behind thousands of them. The client's own watch of a bucket is not used: it
loses messages when a connection breaks, and says nothing.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

import nats.errors
from nats.aio.client import Client
from nats.js.errors import NotFoundError
from prometheus_client import Counter

from bus import stream
from bus.reading.reader import Reader, Received
from schemas import codec, subject
from schemas.messages.estimate import Availability
from schemas.messages.facts import NodeFacts, PodFacts
from schemas.messages.placement import Reservations
from schemas.messages.prediction import Prediction
from schemas.settings import Settings
from schemas.subject import Names
from sinks.extender.state.cluster_state import Board

log = logging.getLogger(__name__)

_PART = 25  # messages taken before others get a turn
_OVER = 100_000  # pods that are over and remembered, so that late messages do not bring them back
_LINGER_SECONDS = 0.02  # one by one they would cost as much as the answers
_PLACES_LINGER_SECONDS = 0.002  # what other replicas hold is to be known at once
_PATIENCE_SECONDS, _SILENCES = 0.5, 4
_AGAIN_SECONDS = 0.5
_AHEAD_US = 5_000_000
_WARNED = 1000

TAKEN = Counter("spazio_extender_messages_total", "messages taken, by kind", ["kind"])
REFUSED = Counter("spazio_extender_refused_total", "messages that could not be read, by kind", ["kind"])

Take = Callable[[Received], None]


class Followed:
    """Keeps a board current.

    Attributes:
        ready: Everything that was there at the start is known.
    """

    def __init__(self, client: Client, settings: Settings, board: Board) -> None:
        """Describe what to follow; nothing is sent before `run`."""
        self._client, self._settings, self._board = client, settings, board
        self._names = Names(settings.prefix)
        self._loading = 0
        self._warned: set[str] = set()
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Follow until cancelled."""
        names = self._names
        cache, nodes = names.availability_bucket, names.nodes_bucket
        pods, places = names.pods_bucket, names.reservations_bucket
        sources: list[tuple[str, str, str, bool, Take]] = [
            ("availability", f"KV_{cache}", f"$KV.{cache}.>", True, self._availability),
            ("reservations", f"KV_{places}", f"$KV.{places}.>", True, self._reservations),
            ("nodes", f"KV_{nodes}", f"$KV.{nodes}.>", True, self._node),
            ("pods", f"KV_{pods}", f"$KV.{pods}.>", True, self._pod),
            # Whoever makes facts without the buckets is heard too; what both say is taken once.
            ("nodefacts", names.telemetry, names.part("*", "nodefacts"), True, self._node),
            ("podfacts", names.telemetry, names.part("*", "podfacts"), False, self._pod),
            ("prediction", names.estimates, names.of("prediction", "*"), True, self._prediction),
        ]
        self._loading = len(sources)
        async with asyncio.TaskGroup() as group:
            for kind, source, wanted, newest, take in sources:
                group.create_task(self._follow(kind, source, wanted, newest, take), name=kind)

    async def _follow(self, kind: str, source: str, wanted: str, newest: bool, take: Take) -> None:
        position = 0
        identity = ""
        loaded, silences = False, 0
        while True:
            try:
                described = await stream.describe(self._client, source)
                if described.identity != identity:
                    identity, position = described.identity, 0
                    if kind == "reservations":
                        self._board.book.renewed()
                reader = Reader(
                    self._client,
                    source,
                    [wanted],
                    after=position,
                    newest=newest,
                    timeout_seconds=self._settings.nats.request_timeout_seconds,
                    bound=True,
                )
                async with reader:
                    while True:
                        linger = _PLACES_LINGER_SECONDS if kind == "reservations" else _LINGER_SECONDS
                        timeout = None if loaded else _PATIENCE_SECONDS
                        messages = await reader.read(linger_seconds=linger, timeout_seconds=timeout)
                        await self._take(kind, messages, take)
                        position = reader.position
                        # What was counted may have expired before it was sent; then there is only silence.
                        silences = silences + 1 if not messages and reader.pending >= 0 else 0
                        if not loaded and (reader.pending == 0 or silences >= _SILENCES):
                            loaded = True
                            self._loaded()
            except (nats.errors.Error, NotFoundError, TimeoutError) as error:
                log.warning("extender.waiting", extra={"stream": source, "reason": repr(error)})
                await asyncio.sleep(_AGAIN_SECONDS)

    def _loaded(self) -> None:
        self._loading -= 1
        if not self._loading:
            self.ready.set()

    async def _take(self, kind: str, messages: Sequence[Received], take: Take) -> None:
        for number, message in enumerate(messages, 1):
            try:
                take(message)
            except ValueError as refused:
                REFUSED.labels(kind).inc()
                self._refused(message.subject, str(refused))
            except Exception:  # one message must not end the answers
                REFUSED.labels(kind).inc()
                log.exception("extender.untaken", extra={"subject": message.subject})
            if number % _PART == 0:
                await asyncio.sleep(0)
        TAKEN.labels(kind).inc(len(messages))

    def _refused(self, subject: str, reason: str) -> None:
        """Say it once for each subject; a node whose clock is wrong says the same every second."""
        first = subject not in self._warned and len(self._warned) < _WARNED
        if first:
            self._warned.add(subject)
        level = logging.WARNING if first else logging.DEBUG
        log.log(level, "extender.refused", extra={"subject": subject, "reason": reason})

    def _availability(self, message: Received) -> None:
        if not message.data:  # one that expires leaves no message; what it said grows old by itself
            return
        availability = codec.decode_from(Availability, message.data, message.subject)
        if availability.at_us > time.time_ns() // 1000 + _AHEAD_US:
            raise ValueError(f"{availability.node} reports from the future: look after its clock")
        self._board.report(availability)

    def _prediction(self, message: Received) -> None:
        self._board.predict(codec.decode_from(Prediction, message.data, message.subject))

    def _node(self, message: Received) -> None:
        if message.data:
            self._board.describe(codec.decode_from(NodeFacts, message.data, message.subject))
        else:
            self._board.leave(subject.name(message.subject.rpartition(".")[2]))

    def _pod(self, message: Received) -> None:
        uid = subject.name(message.subject.rpartition(".")[2])
        if message.data:
            facts = codec.decode(PodFacts, message.data)
            uid = facts.pod
            self._board.pods.hear(facts)
        else:
            self._board.pods.forget(uid, time.time_ns() // 1000 if self.ready.is_set() else None)
        self._board.book.settle(uid)
        self._board.pods.trim(_OVER)

    def _reservations(self, message: Received) -> None:
        node = subject.name(message.subject.rpartition(".")[2])
        if self._board.book.sequence(self._board.rows.row(node)) >= message.sequence:
            return  # we wrote it
        if message.data:
            self._board.book.hear(codec.decode_from(Reservations, message.data, message.subject), message.sequence)
        else:
            self._board.book.gone(node, message.sequence)
