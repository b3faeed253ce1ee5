"""A server that comes back with less is counted once by a service, whatever of it notices; on a server in memory."""

import pytest

from bus.reading import setback
from bus.reading.setback import SET_BACK, Mark, SetBack
from schemas.subject import Names
from tests.support.nats.client import Connection

NAMES = Names()


async def test_all_that_notice_the_same_end_of_a_stream_count_it_once_and_a_later_end_counts_again(
    client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    noticed: dict[tuple[str, int], float] = {}
    monkeypatch.setattr(setback, "_noticed", noticed)
    counter, subject = SET_BACK.labels(NAMES.telemetry)._value, NAMES.node("samples", "n")
    before = counter.get()

    async def notice(*marks: Mark) -> float:
        for mark in marks:
            with pytest.raises(SetBack):
                await setback.check(client, NAMES.telemetry, mark, 1)
        return float(counter.get() - before)

    for _ in range(3):
        await client.jetstream().publish(subject, b"{}")
    last = await setback.last(client, NAMES.telemetry, 1)
    marks = [Mark(last.sequence + more, last.stored_us + more) for more in (1, 2, 3)]
    assert await notice(*marks, *marks) == 1
    await client.jetstream().publish(subject, b"{}")
    assert await notice(Mark(9, last.stored_us + 60_000_000)) == 2
    for key in noticed:
        noticed[key] -= 100
    assert await notice(marks[2]) == 3
    assert len(noticed) == 1
