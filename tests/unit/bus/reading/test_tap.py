"""The parser that hands tapped messages over: however bytes are cut, all get what the client's own would give."""

import itertools

import nats.protocol.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.reading.tap import Parser, Tapped

Heard = list[tuple[object, ...]]

PIECES = [
    b"MSG a.b 7 5\r\nhello\r\n",
    b"MSG a.b 7 $JS.ACK.S.c.1.17.4.1700000000.9 2\r\n\r\n\r\n",
    b"HMSG a.b 7 reply 12 17\r\nNATS/1.0\r\n\r\nhello\r\n",
    b"HMSG a.b 7 29 29\r\nNATS/1.0 100 Heartbeat...\r\n\r\n\r\n",
    b"MSG other 8 5\r\nhello\r\n",
    b"HMSG other 8 reply 12 12\r\nNATS/1.0\r\n\r\n\r\n",
    b"MSG  a.b\t7  3\r\nodd\r\n",
    b"MSG gone 9 3\r\nodd\r\n",
    b"PING\r\n",
    b"+OK\r\n",
]


class Recorder(Tapped):
    """A client without a connection, whose subscription 7 is tapped."""

    def __init__(self, kind: type[nats.protocol.parser.Parser]) -> None:
        super().__init__()
        self.heard: Heard = []
        self.parser = kind(self)
        self.taps[7] = lambda subject, reply, data, headers: self.heard.append((subject, reply, data, headers or None))

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        if sid in self.taps:
            await super()._process_msg(sid, subject, reply, data, headers)
        else:
            self.heard.append((sid, subject, reply, data, headers or None))

    async def _process_ping(self) -> None:
        self.heard.append(("ping",))

    async def hear(self, wire: bytes, edges: list[int]) -> Heard:
        for start, end in itertools.pairwise([0, *sorted(edges), len(wire)]):
            await self.parser.parse(wire[start:end])
        assert not self.parser.buf
        return self.heard


@pytest.mark.slow
@given(
    pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=12), cuts=st.lists(st.integers(0, 200), max_size=12)
)
@settings(max_examples=300, deadline=None)
async def test_whatever_the_cuts_taps_and_client_get_what_the_clients_own_parser_gives(
    pieces: list[bytes], cuts: list[int]
) -> None:
    wire = b"".join(pieces)
    edges = [min(cut, len(wire)) for cut in cuts]
    wanted = await Recorder(nats.protocol.parser.Parser).hear(wire, [])
    assert len(wanted) == len([piece for piece in pieces if piece != b"+OK\r\n"])
    assert await Recorder(Parser).hear(wire, edges) == wanted
