"""Which availabilities the scheduler cache gets, and which ages are counted."""

import time

from bus.subscription import Decoded
from schemas import settings as all_settings
from schemas.messages.estimate import Availability
from schemas.subject import Names
from sinks import cache
from tests.support.processors.estimate import availability


def decoded(node: str, age: float) -> Decoded[Availability]:
    message = availability(node=node, at_us=round((time.time() - age) * 1e6))
    return Decoded(Names().node("availability", node), 1, b"{}", message)


def test_what_is_too_old_for_the_cache_counts_among_its_ages() -> None:
    settings = all_settings.load({"cache_expiry_seconds": "30"}, environ={})
    messages = [decoded("new", 1), decoded("late", 60)]
    rows, measured_us = cache._rows(Names(), messages, settings)
    assert [(row.subject.rpartition(".")[2], row.ttl_seconds) for row in rows] == [("new", 29)]
    assert measured_us == [each.message.at_us for each in messages]
