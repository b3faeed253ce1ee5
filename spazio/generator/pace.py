"""The pace of a replay: pieces of event time, at most at a speed, and as far ahead of the global model as recorded."""

import asyncio
import json
from collections.abc import Sequence

from bus.client import Message
from producers.recorded.recording import Recorded

_FIRST_MODEL_SECONDS, _MODEL_SECONDS = 10.0, 1.0
_PIECE_US = 20_000
# Further ahead of the pace than this, and than so many periods of the nodes, is a wrong clock or what follows a pause.
_FAR_SECONDS, _FAR_PERIODS = 60.0, 3
# A block that ends in a second began in the second before. The sums of a second are complete when the next second that
# has blocks begins, and the model when the sums of the next such second are. So the newest model is this many periods
# of the nodes behind the end of a block.
_BEHIND = 3
# A model takes a fraction of a second from the nodes back to them. Waiting that long for each block would make an hour
# of half minutes as slow as one of seconds, so nodes that report less often than each second run ahead by more blocks.
_SPARSE_LAG = 20


class Model:
    """Event time of the newest global model."""

    def __init__(self, lag_seconds: float, period_seconds: float = 1.0) -> None:
        """Know of no model yet.

        Args:
            lag_seconds: How far nodes may run ahead of the model.
            period_seconds: Time between two blocks of a node, at least 1.
        """
        # The first block of a period precedes the model that it triggers.
        least = period_seconds if period_seconds <= 1 else _SPARSE_LAG * period_seconds
        self._behind = int(_BEHIND * period_seconds) + max(lag_seconds, least)
        self._second, self._first = 0, float("inf")
        self._patience = _FIRST_MODEL_SECONDS
        self._trust = _MODEL_SECONDS
        self._news = asyncio.Event()

    async def receive(self, message: Message) -> None:
        """Record a model."""
        self._second = json.loads(message.data)["at_us"] // 1_000_000
        self._patience = self._trust
        self._news.set()

    async def follow(self, second: float) -> None:
        """Wait until the model is close behind a time; briefly, since a pause in the recording produces no model.

        Each wait in vain halves the next one, so nodes that report irregularly do not make a recording slow.

        Args:
            second: End of the next piece, in seconds; the first call gives the beginning of the recording.
        """
        self._first = min(self._first, int(second) - 1)
        needed = int(second) - self._behind
        if not self._patience or needed < self._first or self._second >= needed:
            return
        try:
            async with asyncio.timeout(self._patience):
                while self._second < needed:
                    self._news.clear()
                    await self._news.wait()
            self._trust = min(2 * self._trust, _MODEL_SECONDS)
        except TimeoutError:
            self._patience, self._trust = 0.0, self._trust / 2


class Speed:
    """When pieces are due at a speed: by the steps of the nodes' clocks from block to block of samples.

    Facts have the times of what they are of, which may be weeks before. Clocks differ, and after the server was away an
    agent sends at once what it kept. So each node has its own distance from the pace. A block that is far ahead, after
    a pause or by its clock, goes at once, and the node goes on from there at the pace; so does one whose clock was set
    back, if it alone moved the pace. All else that is behind the pace goes at once.
    """

    def __init__(self, speed: float, period_seconds: float = 1.0) -> None:
        """Begin with the first block.

        Args:
            speed: Recorded seconds per second; 0: everything is due at once.
            period_seconds: Time between two blocks of a node, at least 1.
        """
        self._speed, self._far_us = speed, max(_FAR_SECONDS, _FAR_PERIODS * period_seconds) * 1e6
        self._began, self._first_us, self._pace_us = 0.0, 0, 0
        self._nodes: dict[str, tuple[int, int]] = {}  # end of the newest block, and distance
        self._mover, self._shared_us = "", 0  # node that moved the pace last; the pace when another one had before

    def wait_seconds(self, piece: Sequence[Recorded], now: float) -> float:
        """Return for how long a piece has to wait.

        Args:
            piece: The piece.
            now: Seconds of a clock.
        """
        block = next((item for item in piece if item.kind == "samples"), None)
        if not self._speed or block is None:
            return 0.0
        if not self._mover:
            self._began, self._first_us, self._pace_us = now, block.end_us, block.end_us
            self._mover, self._nodes[block.node] = block.node, (block.end_us, 0)
        distance_us = self._distance(block)
        self._nodes[block.node] = block.end_us, distance_us
        due_us = block.end_us - distance_us
        if due_us > self._pace_us:
            self._shared_us = self._shared_us if block.node == self._mover else due_us
            self._mover, self._pace_us = block.node, due_us
        return max(0.0, self._began + (due_us - self._first_us) / 1e6 / self._speed - now)

    def _distance(self, block: Recorded) -> int:
        """Return how far ahead of the pace the clock of a block's node is."""
        _, usual_us = self._nodes[self._mover]
        newest_us, own_us = self._nodes.get(block.node, (block.end_us, usual_us))
        alone = self._pace_us - self._shared_us > self._far_us
        if not alone or newest_us - block.end_us <= self._far_us:
            # After a pause the first node that catches up moves the pace, and the others catch up beside it.
            for distance_us in (own_us, usual_us):
                if block.end_us - distance_us - self._pace_us <= self._far_us:
                    return distance_us
        return block.end_us - self._pace_us


def split(part: Sequence[Recorded]) -> list[list[Recorded]]:
    """Split into pieces of at most 20 ms of event time; what is much earlier begins another piece, too."""
    pieces: list[list[Recorded]] = []
    for item in part:
        if not pieces or not -_FAR_SECONDS * 1e6 <= item.end_us - pieces[-1][0].end_us <= _PIECE_US:
            pieces.append([])
        pieces[-1].append(item)
    return pieces
