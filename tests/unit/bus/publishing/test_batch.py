"""Frames of an atomic batch are those that the client itself would write."""

import nats.errors
import pytest
from nats.aio.client import Client
from nats.js import api

from bus.publishing import batch
from bus.publishing.batch import Batch, Row

ROWS = [
    Row("spazio.availability.n", b'{"v":1}'),
    Row("spazio.availability.my=5Fhost", b""),
    Row("$KV.SPAZIO_AVAILABILITY.n", "ä\r\n\r\n".encode(), 30),
]


class Recorder(Client):
    """A client that keeps what it would send."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self._status = Client.CONNECTED
        self._max_payload = 1 << 20

    async def _send_command(self, cmd: bytes, priority: bool = False) -> None:
        self.sent += cmd


async def test_frames_are_what_the_client_writes_for_each_row() -> None:
    client = Recorder()
    cursor = Row("spazio.cursor.0", b"{}")
    for number, row in enumerate([*ROWS, cursor, *ROWS], 1):
        headers = {api.Header.BATCH_ID.value: "id", api.Header.BATCH_SEQUENCE.value: str(number)}
        if row.ttl_seconds:
            headers[api.Header.MSG_TTL.value] = str(row.ttl_seconds)
        if row is cursor:
            headers[api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value] = "7"
        await client.publish(row.subject, row.payload, headers=headers)
    # The client leaves two spaces where there is no reply.
    batches = [Batch(ROWS, cursor, 7), Batch(ROWS, Row("spazio.cursor.1", b"{}"), 8)]
    assert batch._frames(batches, "id", 1 << 20) == client.sent.replace(b"  ", b" ")


def test_a_row_beyond_what_the_server_takes_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(nats.errors.MaxPayloadError):
        batch._frames([Batch([*ROWS, Row("spazio.availability.n", bytes(1000))], ROWS[0], 0)], "id", 1000)
