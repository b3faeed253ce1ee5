"""A new replica takes over what others have seen: the newest counts, and broken promises leave as kept ones do."""

from schemas.messages.placement import MOST_EVIDENCE
from tests.unit.sinks.extender.trust.test_promises import PROMOTING, Tracked, heard, published


def test_a_share_that_stays_the_same_is_the_same_after_a_restart_as_before() -> None:
    """6 % of a full window were broken, and 6 % of what settles next; 10 % are accepted."""
    tracked = Tracked(**PROMOTING)
    tracked.promises.hear(heard(MOST_EVIDENCE, round(0.06 * MOST_EVIDENCE), promoted=True))
    for _ in range(MOST_EVIDENCE // 50):
        tracked.settle(50, broken=3)
        assert tracked.promises.is_promoted("shop")
        (seen,) = published(tracked).promises
        assert seen.evidence == MOST_EVIDENCE
        assert abs(seen.against - 0.06 * MOST_EVIDENCE) <= 3


def test_of_two_that_have_seen_as_much_the_newest_counts_until_something_settles_here() -> None:
    """The message of a replica that has ended stays for an hour, and is read first."""
    tracked = Tracked(**PROMOTING)
    tracked.promises.hear(heard(MOST_EVIDENCE, 0, promoted=True))
    tracked.promises.hear(heard(MOST_EVIDENCE, 45))
    assert not tracked.is_promoted(), "demoted since, and 9 % do not promote again"
    assert [each.against for each in published(tracked).promises] == [45]
    tracked.settle(1)
    tracked.promises.hear(heard(MOST_EVIDENCE, 0, promoted=True))
    assert not tracked.is_promoted(), "it has seen as much itself"


def test_what_is_no_evidence_promotes_nothing() -> None:
    tracked = Tracked(**PROMOTING)
    tracked.promises.hear(heard(0, 0, promoted=True))
    assert not tracked.is_promoted()
