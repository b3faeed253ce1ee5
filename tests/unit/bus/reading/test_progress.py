"""What a reader concludes from what arrives, without a server or a loop."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.reading.progress import HOLE, NUDGES, Arrival, Progress
from bus.reading.setback import Mark

BATCH = 10
REPLIES = b"_INBOX.x."


def progress(after: int = 0, *, nudges: int = 0) -> Progress:
    made = Progress(Mark(after), pending=-1, batch=BATCH, heartbeat_seconds=2, nudges=nudges)
    made.open(0)
    return made


def message(sequence: int, count: int, pending: int = 0, headers: bytes | None = None) -> Arrival:
    return b"s.a", b"$JS.ACK.S.c.1.%d.%d.1700000000.%d" % (sequence, count, pending), b"%d" % sequence, headers


def status(code: int, text: str = "", round_: int = 0, **headers: int) -> Arrival:
    lines = [f"NATS/1.0 {code} {text}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return REPLIES + b"%d" % round_, b"", b"", "\r\n".join([*lines, "\r\n"]).encode()


def sent(sequences: Sequence[int]) -> list[Arrival]:
    """Return what a consumer sends of a stream that has these sequences."""
    return [message(sequence, count, len(sequences) - count) for count, sequence in enumerate(sequences, 1)]


def due(reading: Progress) -> bool:
    return reading.due


SEQUENCES = st.sets(st.integers(1, 200), min_size=1, max_size=30).map(sorted)


@given(SEQUENCES, st.data())
def test_however_arrivals_are_grouped_the_messages_are_the_same(sequences: list[int], data: st.DataObject) -> None:
    arrivals, reading, accepted_sequences = sent(sequences), progress(), list[int]()
    while arrivals:
        size = data.draw(st.integers(1, len(arrivals)))
        accepted = reading.accept(arrivals[:size])
        assert not accepted.broken
        accepted_sequences += [each.sequence for each in accepted.messages]
        arrivals = arrivals[size:]
    assert accepted_sequences == sequences
    assert (reading.position, reading.pending) == (sequences[-1], 0)
    assert reading.has_all(len(sequences))
    assert not reading.has_all(len(sequences) + 1)


@given(SEQUENCES, st.data())
def test_behind_a_message_that_was_lost_nothing_is_handed_out_until_it_is_sent_again(
    sequences: list[int], data: st.DataObject
) -> None:
    lost = data.draw(st.integers(0, len(sequences) - 1))
    reading, arrivals = progress(), sent(sequences)
    heartbeat = status(100, "Idle Heartbeat", Nats_Last_Consumer=len(sequences))
    accepted = reading.accept([*arrivals[:lost], *arrivals[lost + 1 :], heartbeat])
    assert [each.sequence for each in accepted.messages] == sequences[:lost]
    assert accepted.broken == HOLE
    reading.open(1)  # a consumer behind the position counts from one again
    accepted = reading.accept(sent(sequences[lost:]))
    assert [each.sequence for each in accepted.messages] == sequences[lost:]
    assert not accepted.broken


def test_what_was_handed_out_before_is_a_hole_even_as_a_consumers_first() -> None:
    reading = progress(after=7)
    assert reading.accept([message(7, 1)]) == ([], HOLE, "")
    assert reading.position == 7


def test_a_message_that_looks_like_a_status_by_its_headers_is_a_message() -> None:
    accepted = progress().accept([message(1, 1, headers=b"NATS/1.0 423 pinned elsewhere\r\n\r\n")])
    assert [each.sequence for each in accepted.messages] == [1]


def test_a_heartbeat_says_what_was_sent_and_is_no_hole_if_all_came() -> None:
    reading = progress()
    assert reading.accept([*sent([3]), status(100, Nats_Last_Consumer=1)]).broken == ""
    assert reading.accept([status(100, Nats_Last_Consumer=2)]).broken == HOLE


@pytest.mark.parametrize(
    ("end", "broken"),
    [
        (status(404, "No Messages"), ""),
        (status(408, "Request Timeout", Nats_Pending_Messages=BATCH), ""),
        (status(409, "Message Size Exceeds MaxBytes"), ""),
        (status(409, "Consumer Deleted"), "409 Consumer Deleted"),
        (status(503), "503 "),
    ],
)
def test_a_request_that_has_ended_and_a_consumer_that_has_are_made_again(end: Arrival, broken: str) -> None:
    reading = progress()
    reading.ask(BATCH, 0)
    assert not due(reading)
    accepted = reading.accept([*sent([1]), end, message(2, 2)])
    assert accepted.broken == broken
    assert [each.sequence for each in accepted.messages] == ([1] if broken else [1, 2])
    assert due(reading) is not bool(broken)


def test_the_end_of_a_request_that_was_given_up_does_not_count() -> None:
    reading = progress(nudges=NUDGES)
    reading.ask(BATCH, 0)
    assert reading.nudge(6)
    reading.ask(BATCH, 6)
    reading.accept([status(408, round_=0)])
    assert not due(reading)
    reading.accept([status(408, round_=1)])
    assert due(reading)


def test_half_a_batch_is_left_when_more_is_asked_for() -> None:
    reading = progress()
    assert due(reading)
    reading.ask(BATCH, 0)
    reading.accept(sent([1, 2, 3, 4]))
    assert not due(reading)
    reading.accept([message(5, 5)])
    assert due(reading)


def test_silence_is_nudged_so_often_unless_anything_arrives_in_between() -> None:
    reading = progress(nudges=NUDGES)
    for now in (5.0, 10.0):
        assert reading.silent_at == now
        assert reading.nudge(now)
    assert not reading.nudge(15)
    reading.hear(15)
    assert reading.silent_at == 20
    assert reading.nudge(20)
    assert not progress().nudge(5)  # without a lease another consumer costs nothing


def test_a_lease_that_another_has_is_reported_with_the_servers_words() -> None:
    accepted = progress().accept([*sent([1]), status(423, "Nats-Pin-Id Mismatch"), message(2, 2)])
    assert [each.sequence for each in accepted.messages] == [1]
    assert (accepted.broken, accepted.lost) == ("", "Nats-Pin-Id Mismatch")


def test_each_message_is_held_against_the_lease_and_no_status_is() -> None:
    looked: list[bytes | None] = []
    arrivals = [message(1, 1, headers=b"a"), status(408), message(2, 2, headers=b"b")]
    progress().accept(arrivals, looked.append)
    assert looked == [b"a", b"b"]
