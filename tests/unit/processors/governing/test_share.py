"""How a tier's limit is divided among pods, and which pod goes first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.governing import share, victim
from processors.governing.victim import Candidate

LEAST = 0.01
usages = st.lists(st.floats(0, 100), min_size=1, max_size=30)
candidates = st.lists(
    st.builds(Candidate, uid=st.uuids().map(str), tier=st.integers(2, 4), created_us=st.integers(0, 9)),
    min_size=1,
    unique_by=lambda each: each.uid,
)


@given(st.floats(0, 100), usages)
def test_shares_add_up_and_nobody_gets_less_than_the_least(total: float, used: list[float]) -> None:
    parts = share.cores(total, used, least=LEAST)
    assert len(parts) == len(used)
    assert min(parts) >= LEAST - 1e-12
    assert sum(parts) == pytest.approx(max(total, LEAST * len(used)))


@given(st.floats(0, 100), st.floats(0, 100), usages)
def test_more_to_share_gives_nobody_less(total: float, more: float, used: list[float]) -> None:
    before, after = (share.cores(each, used, least=LEAST) for each in (total, total + more))
    assert all(then >= now - 1e-9 for now, then in zip(before, after, strict=True))


@given(st.floats(0, 100), usages)
def test_who_uses_more_gets_no_less_and_order_does_not_matter(total: float, used: list[float]) -> None:
    parts = share.cores(total, sorted(used), least=LEAST)
    assert parts == sorted(parts)
    assert share.cores(total, sorted(used, reverse=True), least=LEAST) == pytest.approx(parts[::-1])


def test_nobody_shares_nothing() -> None:
    assert share.cores(3, [], least=LEAST) == []
    assert share.memory(3, []) == []


@given(st.floats(-1e12, 1e12), st.lists(st.integers(0, 1 << 40), min_size=1, max_size=30))
def test_memory_limits_take_what_is_missing_and_a_tenth_at_most_and_never_lend_more_than_is_free(
    free: float, used: list[int]
) -> None:
    limits, slack = share.memory(free, used), share.BLOCK_BYTES
    assert all(limit % share.BLOCK_BYTES == 0 < limit for limit in limits)
    assert all(limit >= 0.9 * each - slack for limit, each in zip(limits, used, strict=True))
    assert sum(limits) <= sum(used) + max(free, -0.1 * sum(used)) * (1 - 1e-9 * (free < 0)) + slack * len(used)


@given(candidates)
def test_the_least_important_and_newest_goes_first(given_pods: list[Candidate]) -> None:
    chosen = victim.choose(given_pods, ())
    assert chosen is not None
    assert chosen.tier == max(each.tier for each in given_pods)
    assert chosen.created_us == max(each.created_us for each in given_pods if each.tier == chosen.tier)


@given(candidates)
def test_all_are_tried_before_one_is_tried_again(given_pods: list[Candidate]) -> None:
    tried: set[str] = set()
    for _ in given_pods:
        chosen = victim.choose(given_pods, tried)
        assert chosen is not None
        assert chosen.uid not in tried
        tried.add(chosen.uid)
    assert victim.choose(given_pods, tried) == victim.choose(given_pods, ())
    assert victim.choose([], ()) is None
