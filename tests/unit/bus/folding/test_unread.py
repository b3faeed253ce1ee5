"""What expired before it was read is counted once, however often a task is begun again."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from bus.folding.resumption import Unread
from bus.stream import Stream

SOURCE = Stream("S", datetime(2026, 1, 1, tzinfo=UTC), 31, 50, 1)


def test_what_expired_is_counted_once_and_what_expires_later_for_itself() -> None:
    unread = Unread("0")
    assert [unread.count(10, SOURCE) for _ in range(3)] == [20, 0, 0]
    assert unread.count(10, replace(SOURCE, first=36)) == 5
    assert unread.count(40, replace(SOURCE, first=36)) == 0
    assert unread.count(40, replace(SOURCE, first=46)) == 5


def test_a_stream_that_was_made_again_is_counted_for_itself_and_a_new_state_has_missed_nothing() -> None:
    unread = Unread("0")
    assert unread.count(0, SOURCE) == 0
    assert unread.count(10, SOURCE) == 20
    made_again = replace(SOURCE, created=SOURCE.created + timedelta(days=1))
    assert unread.count(28, made_again) == 2


def test_of_a_stream_with_partitions_a_share_is_counted() -> None:
    assert Unread("0").count(10, replace(SOURCE, partitions=4)) == 5
