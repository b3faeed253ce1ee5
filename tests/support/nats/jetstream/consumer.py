"""A pull consumer: what it delivers, to whom, and what it does when nobody acknowledges."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from tests.support.nats import message as messages
from tests.support.nats.jetstream import waiting
from tests.support.nats.jetstream.log import Log
from tests.support.nats.jetstream.pending import Pending
from tests.support.nats.jetstream.pin import Pin, status
from tests.support.nats.jetstream.waiting import Bad, Queue, Request
from tests.support.nats.message import Stored, block
from tests.support.nats.refusal import Refused
from tests.support.nats.subject import Filter


class Post(Protocol):
    """How a consumer reaches its clients: the server, or what is left of it."""

    def deliver(self, inbox: str, subject: str, reply: str, headers: bytes, data: bytes) -> bool:
        """Send a message to the listeners of an inbox; False: there are none."""

    def has_interest(self, subject: str) -> bool:
        """Tell whether anybody listens on a subject."""

    def advise(self, event: str, stream: str, consumer: str, fields: Mapping[str, str]) -> None:
        """Publish an advisory."""

    def new_identity(self) -> str:
        """Return a fresh identity."""

    def now_ns(self) -> int:
        """Return the time in nanoseconds since the epoch."""


class _Picked(NamedTuple):
    stored: Stored
    times: int


class Consumer:
    """One consumer of one stream."""

    def __init__(self, stream: str, config: dict[str, Any], log: Log, post: Post, gone: Callable[[], None]) -> None:
        """Make a consumer that has delivered nothing.

        Args:
            stream: Name of its stream.
            config: Its configuration, complete.
            log: The stream's messages.
            post: Way to clients.
            gone: Called when nobody has used it for its inactive threshold.
        """
        self.config, self.name = config, str(config["name"])
        self.created_ns = post.now_ns()
        self.stream, self._log, self._post, self._gone = stream, log, post, gone
        self._ack_prefix = f"$JS.ACK.{stream}.{self.name}"
        self.wanted = Filter(config.get("filter_subjects") or ([f] if (f := config.get("filter_subject")) else []))
        self.pending = Pending(config["ack_policy"], config.get("ack_wait", 0) / 1e9)
        self._newest: list[int] = []
        self._resume = log.last + 1
        self._number = 1
        self._sequence = self._start()
        self.pending.reset(self._sequence)
        self.left = len(self._newest) or log.count(self.wanted, self._sequence)
        self.queue = Queue(config["max_waiting"])
        self.pin = Pin(config, post.new_identity, self._say, self._advise)
        self._timer: asyncio.TimerHandle | None = None
        self._used = asyncio.get_running_loop().time()
        self._schedule()

    def _start(self) -> int:
        policy = self.config["deliver_policy"]
        if policy == "by_start_sequence":
            return max(1, int(self.config["opt_start_seq"]))
        if policy == "last_per_subject":
            self._newest = self._log.newest_of_each(self.wanted)
            return self._newest[0] if self._newest else self._log.last + 1
        if policy == "new":
            return self._log.last + 1
        if policy == "last":
            newest = [self._log.get(number) for number in reversed(self._log.newest_of_each(self.wanted))]
            return newest[0].sequence if newest and newest[0] else self._log.last + 1
        return 1

    @property
    def delivered(self) -> tuple[int, int]:
        """Return (deliveries, last stream sequence) so far."""
        return self._number - 1, self._sequence - 1

    def close(self, reason: str) -> None:
        """End it; waiting clients get the reason; an empty reason: they get nothing."""
        for request in self.queue:
            if reason:
                self._say(request.reply, status(reason))
        self.suspend()

    def suspend(self) -> None:
        """Stop everything that runs by itself, and forget requests and the pin."""
        self.queue.clear()
        self.pin.forget()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def resume(self) -> None:
        """Go on after `suspend`."""
        self._used = asyncio.get_running_loop().time()
        self._schedule()

    def stored(self, message: Stored) -> None:
        """Take note of a new message of the stream; `pump` delivers it."""
        if self.wanted(message.subject):
            self.left += 1

    def removed(self, message: Stored) -> None:
        """Take note of a message that is no longer stored."""
        self.pending.close(message.sequence)
        if self._newest:
            if message.sequence in self._newest:
                self._skip(message.sequence)
                self.left -= 1
        elif message.sequence >= self._sequence and self.wanted(message.subject):
            self.left -= 1

    def ask(self, reply: str, body: bytes) -> None:
        """Take a pull request."""
        loop = asyncio.get_running_loop()
        self._log.expire()
        try:
            request = waiting.parse(reply, body, loop.time())
            self.pin.admit(request, self.pump)
            self._admit_at_once(request)
            self.queue.add(request)
        except Bad as bad:
            self._used = loop.time()
            if bad.status:
                self._say(reply, status(bad.status))
            return
        self.pump()

    def _admit_at_once(self, request: Request) -> None:
        if request.no_wait:
            ready = self.left + self.pending.due
            if not ready and request.expires is None:
                raise Bad("404 No Messages")
            if ready and ready < self.queue.wanted:
                raise Bad("408 Requests Pending")

    def acknowledge(self, tokens: list[str], body: bytes) -> None:
        """Take an acknowledgement of the delivery that the tokens of its reply subject name."""
        sequence, number = int(tokens[1]), int(tokens[2])
        self._used = asyncio.get_running_loop().time()
        if body in (b"", b"+ACK", b"+OK") or body.startswith(b"+TERM"):
            self.pending.acknowledge(sequence, number)
        elif body.startswith(b"-NAK"):
            self.pending.refuse(sequence)
        elif body == b"+WPI":
            self.pending.extend(sequence, self._used)
        self.pump()

    def reset(self, sequence: int) -> int:
        """Begin again at a sequence; 0: behind the acknowledgement floor. The pin stays.

        Raises:
            Refused: The deliver policy does not allow that sequence.
        """
        policy = self.config["deliver_policy"]
        if not sequence:
            sequence = self.pending.floor_sequence + 1
        elif policy == "by_start_sequence" and sequence < self.config["opt_start_seq"]:
            raise Refused(400, 10204, "invalid reset: below start seq")
        elif policy not in ("all", "by_start_sequence"):
            raise Refused(400, 10204, "invalid reset: not allowed")
        self._sequence, self._number, self._newest = sequence, 1, []
        self.pending.reset(sequence)
        self.left = self._log.count(self.wanted, sequence)
        asyncio.get_running_loop().call_soon(self.pump)
        return sequence

    def unpin(self) -> None:
        """Take the pin away by an administrator's request."""
        self.pin.release("admin")
        self.pump()

    def pump(self) -> None:
        """Deliver what can be delivered now."""
        self._log.expire()
        self.pending.collect(asyncio.get_running_loop().time())
        while len(self.queue):
            picked = self._pick()
            if picked is None or not self._deliver(picked):
                break
        self._sweep()
        self._schedule()

    def _pick(self) -> _Picked | None:
        while (again := self.pending.pop()) is not None:
            stored = self._log.get(again[0])
            if stored is not None:
                return _Picked(stored, again[1])
            self.pending.close(again[0])
        if 0 < self.config.get("max_ack_pending", 0) <= len(self.pending):
            return None
        if self._newest:
            stored = self._log.get(self._newest[0])
            return _Picked(stored, 1) if stored else None
        stored = self._log.next(self.wanted, self._sequence)
        if stored is None:
            self._sequence = max(self._sequence, self._log.last + 1)
            return None
        return _Picked(stored, 1)

    def _deliver(self, picked: _Picked) -> bool:
        """Send a message to whose turn it is; False: nobody may have it now."""
        loop, stored = asyncio.get_running_loop(), picked.stored
        self._drop_without_interest(loop.time())
        if self.pin.choose(self.queue, self._post.now_ns(), self.pump) is None:
            if picked.times > 1:
                self.pending.put_back(stored.sequence)
            return False
        if picked.times == 1:
            self._advance(stored.sequence)
        request = self.queue.serve()
        request.beat = loop.time() + request.heartbeat
        reply = f"{self._ack_prefix}.{picked.times}.{stored.sequence}.{self._number}.{stored.at_ns}.{max(0, self.left)}"
        self.pending.deliver(stored.sequence, self._number, loop.time())
        self._number += 1
        self._used = loop.time()
        extra = self.pin.mark({})
        headers = messages.extend(stored.headers, extra) if extra else stored.headers
        self._post.deliver(request.reply, stored.subject, reply, headers, stored.data)
        return True

    def _advance(self, sequence: int) -> None:
        self.left -= 1
        self._sequence = sequence + 1
        if self._newest:
            self._skip(sequence)

    def _skip(self, sequence: int) -> None:
        """Take a message off the newest ones; behind the last of them every message is delivered."""
        self._newest.remove(sequence)
        if not self._newest:
            self._sequence = self._resume
            self.left = self._log.count(self.wanted, self._resume)

    def _drop_without_interest(self, now: float) -> None:
        for request in self.queue:
            if not self._post.has_interest(request.reply):
                self.queue.drop(request)
            elif request.expires is not None and now >= request.expires:
                self._say(request.reply, request.status("408 Request Timeout"))
                self.queue.drop(request)

    def _sweep(self) -> None:
        """End requests that are over, and give signs of life to the others."""
        now = asyncio.get_running_loop().time()
        self._drop_without_interest(now)
        for request in self.queue:
            self._used = max(self._used, now)
            if request.no_wait and (request.expires is None or request.delivered):
                self._say(request.reply, status("404 No Messages"))
                self.queue.drop(request)
            elif request.heartbeat and now >= request.beat:
                number, sequence = self.delivered
                beat = {"Nats-Last-Consumer": number, "Nats-Last-Stream": sequence}
                self._say(request.reply, block(beat, "100 Idle Heartbeat"))
                request.beat = now + request.heartbeat

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        times = [request.due for request in self.queue]
        times.append(self.pending.next_due if self.config["ack_policy"] != "none" else None)
        threshold = self.config.get("inactive_threshold", 0) / 1e9
        if threshold and not len(self.queue):
            times.append(self._used + threshold)
        due = min((time for time in times if time is not None), default=None)
        if due is not None:
            loop = asyncio.get_running_loop()
            # A timer may fire a hair early by its own clock; it must not come back at once for ever.
            self._timer = loop.call_at(max(due, loop.time()) + 0.001, self._tick)

    def _tick(self) -> None:
        self._timer = None
        threshold = self.config.get("inactive_threshold", 0) / 1e9
        idle = asyncio.get_running_loop().time() - self._used
        if threshold and not len(self.queue) and idle >= threshold:
            self._gone()
            return
        self.pump()

    def _say(self, inbox: str, headers: bytes) -> None:
        self._post.deliver(inbox, inbox, "", headers, b"")

    def _advise(self, event: str, fields: Mapping[str, str]) -> None:
        self._post.advise(event, self.stream, self.name, fields)
