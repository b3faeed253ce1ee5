"""Laws of the merged account: whatever sources say late, twice or not at all, each event is sent once and in order."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.containers import lifetime, merge
from producers.containers.merge import Merge
from producers.containers.published import Happening
from producers.containers.registry import Registry
from producers.containers.sources.source import Event, Identity, Observation
from tests.unit.producers.containers.lives import ID, account, events, listing, seen

LIFE: list[Event] = ["created", "started", "exited", "deleted"]
DELAYS = st.integers(0, lifetime.LATE_US * 3 // 4)


@dataclass
class Script:
    """An observation, and when it arrives."""

    observation: Observation
    arrives: int


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[Script], int, set[str]]:
    """Lives of one container as several sources report them; how many; the sources.

    A watch on folders tells everything, timed when it is read. Docker says `created` and `deleted` only once for all
    lives, times everything itself, and later than it was.
    """
    sources = draw(st.sets(st.sampled_from(["cgroup", "bundle", "docker"]), min_size=1))
    lives = draw(st.integers(1, 5))
    now, truth = 10_000_000, list[tuple[Event, int, int]]()
    for life in range(lives):
        for event in LIFE:
            now += draw(st.integers(1, 800_000))
            truth.append((event, life, now))
    reports = []
    for source in sorted(sources):
        arrives = at = 0
        for event, life, true in truth:
            skipped = (event == "created" and life > 0) or (event == "deleted" and life < lives - 1)
            if source == "docker" and skipped:
                continue
            arrives = max(arrives + 1, true + draw(DELAYS))
            at = arrives if source != "docker" else min(arrives, max(at + 1, true + draw(st.integers(0, 300_000))))
            reports.append(Script(Observation(source, event, Identity(ID), at), arrives))
    return sorted(reports, key=lambda item: item.arrives), lives, sources


def assert_lawful(published: list[Happening], lives: int, sources: set[str]) -> None:
    """Every event of every life once, in order; only a deletion that Docker hides may be reported too late."""
    sequences = list(lives_of(published))
    assert len(sequences) == lives
    assert sequences[-1] == LIFE
    assert all(life == LIFE or ("docker" in sources and life == LIFE[:3]) for life in sequences)
    times = [item.boottime_us for item in published]
    assert times == sorted(times)
    assert len({(item.event, item.boottime_us) for item in published}) == len(published), "ids of messages differ"


@pytest.mark.slow
@given(stories())
def test_every_event_of_every_life_is_reported_once_and_in_order_however_late_sources_are(
    story: tuple[list[Script], int, set[str]],
) -> None:
    reports, lives, sources = story
    made = account()
    published = [item for report in reports for item in made.observe(report.observation)]
    assert_lawful(published, lives, sources)


@pytest.mark.slow
@given(stories(), st.data())
def test_listings_and_repetitions_in_between_change_nothing(
    story: tuple[list[Script], int, set[str]], data: st.DataObject
) -> None:
    reports, lives, sources = story
    made, published = account(), list[Happening]()
    state = dict[str, Event]()
    for report in reports:
        source = report.observation.source
        published += made.observe(report.observation)
        state[source] = report.observation.event
        if data.draw(st.booleans()):
            published += made.observe(report.observation)
        if data.draw(st.booleans()):
            shown = {} if state[source] == "deleted" else listing(ID, running=state[source] == "started")
            published += made.present(source, shown, report.arrives)
    assert_lawful(published, lives, sources)


@given(st.lists(st.tuples(st.sampled_from(LIFE), st.booleans()), max_size=12), st.booleans())
def test_what_a_source_has_missed_is_corrected_by_its_listing(story: list[tuple[Event, bool]], running: bool) -> None:
    made, published, at = account(), list[Happening](), 0
    for event, arrives in story:
        at += 1_000_000
        if arrives:
            published += made.observe(Observation("cgroup", event, Identity(ID), at))
    at += lifetime.LATE_US + 1
    published += made.present("cgroup", listing(ID) if running else {}, at)
    last = published[-1].event if published else "deleted"
    assert last == ("started" if running else "deleted")
    for before, after in itertools.pairwise(published):
        order = LIFE.index(after.event) - LIFE.index(before.event)
        assert order > 0 or (before.event in ("exited", "deleted") and after.event == "created")


def test_the_first_reporter_wins_and_later_ones_are_named_in_what_follows() -> None:
    made = account()
    (created,) = made.observe(seen("created", 1, "bundle", Identity(ID, name="web-0")))
    assert made.observe(seen("created", 1.01, "cgroup")) == []
    (started,) = made.observe(seen("started", 1.2, "cgroup"))
    assert (created.sources, started.sources) == (("bundle",), ("bundle", "cgroup"))
    assert (started.identity.name, started.boottime_us) == ("web-0", 1_200_000)


def test_a_start_without_a_creation_gives_both() -> None:
    assert events(account().observe(seen("started", 1, "docker"))) == ["created", "started"]


def test_an_exit_that_comes_before_the_start_was_seen_is_reported_without_it() -> None:
    made = account()
    made.observe(seen("created", 1))
    assert events(made.observe(seen("exited", 1.1))) == ["exited"]
    assert made.observe(seen("started", 1.2, "docker")) == []


def test_a_container_that_never_ran_is_deleted_without_an_exit() -> None:
    made = account()
    made.observe(seen("created", 1, "docker"))
    assert events(made.observe(seen("deleted", 9, "docker"))) == ["deleted"]


def test_an_end_of_a_container_that_nobody_knows_is_stale() -> None:
    before = merge.STALE._value.get()
    assert account().observe(seen("exited", 1)) == []
    assert merge.STALE._value.get() == before + 1


def test_docker_saying_start_after_the_container_has_ended_begins_no_new_life() -> None:
    made = account()
    for event, at in (("created", 1.0), ("started", 1.2), ("exited", 1.201), ("deleted", 1.21)):
        made.observe(seen(event, at))  # type: ignore[arg-type]
    assert made.observe(seen("created", 0.9, "docker")) == []
    assert made.observe(seen("started", 1.206, "docker")) == []
    assert made.observe(seen("exited", 1.25, "docker")) == []


def test_a_source_that_appears_long_after_an_end_and_reports_a_start_means_a_new_life() -> None:
    made = account()
    for event, at in (("created", 1.0), ("exited", 1.2), ("deleted", 1.21)):
        made.observe(seen(event, at))  # type: ignore[arg-type]
    assert events(made.observe(seen("started", 10, "docker"))) == ["created", "started"]


def test_a_container_that_ended_unseen_by_a_source_is_not_revived_by_its_old_listing() -> None:
    made = account()
    made.present("docker", listing(ID), 1_000_000)
    made.observe(seen("created", 0.5))
    assert events(made.observe(seen("exited", 5))) == ["exited"]
    assert made.present("docker", listing(ID), 5_100_000) == []
    assert events(made.present("docker", listing(ID), 5_100_000 + lifetime.LATE_US)) == ["created", "started"]


def test_an_observation_after_the_moment_of_a_listing_outweighs_it() -> None:
    made = account()
    made.observe(seen("created", 2))
    assert made.present("cgroup", {}, 1_900_000) == []
    assert events(made.observe(seen("started", 2.1))) == ["started"]


def test_an_end_that_a_source_has_just_reported_outweighs_its_listing() -> None:
    made = account()
    made.observe(seen("started", 1, "docker"))
    made.observe(seen("exited", 2, "docker"))
    assert made.present("docker", listing(ID), 2_100_000) == []
    assert events(made.present("docker", listing(ID), 2_000_001 + lifetime.LATE_US)) == ["created", "started"]


def test_a_list_that_lags_does_not_start_what_another_source_does_not_have_any_more() -> None:
    made = account()
    for event in LIFE[:2]:
        made.observe(seen(event, 1))
    assert made.present("docker", listing(ID), 2_000_000) == []
    for event in LIFE[2:]:
        made.observe(seen(event, 3))
    late = 3_000_001 + lifetime.LATE_US
    made.present("cgroup", {}, late)
    assert made.present("docker", listing(ID), late + 1) == []
    assert events(made.observe(seen("started", late / 1e6 + 1))) == ["created", "started"]
    assert made.present("docker", listing(ID), late + 2_000_000) == []
    assert events(made.present("docker", listing(ID, running=False), late + 3_000_000)) == ["exited"]


def test_what_a_listing_does_not_show_any_more_has_exited_and_is_deleted() -> None:
    made = account()
    assert events(made.present("cgroup", listing(ID), 1_000_000)) == ["created", "started"]
    assert events(made.present("cgroup", {}, 2_000_000)) == ["exited", "deleted"]
    assert made.present("cgroup", {}, 3_000_000) == []


def test_a_listed_container_that_does_not_run_is_news_only_of_its_end() -> None:
    made = account()
    assert made.present("docker", listing(ID, running=False), 1_000_000) == []
    made.observe(seen("started", 2, "docker"))
    assert events(made.present("docker", listing(ID, running=False), 3_000_000)) == ["exited"]


def test_nothing_is_kept_of_a_container_a_minute_after_it_was_deleted() -> None:
    registry = Registry()
    made = Merge(registry)
    made.settle(0)
    for event in LIFE:
        made.observe(seen(event, 1, identity=Identity(ID, pod="uid", name="web-0")))
    assert registry.get(ID) is not None
    assert registry.get("uid") is not None
    made.present("cgroup", {}, 1_000_000 + merge.KEPT_US + 1)
    assert (made._containers, registry.get(ID), registry.get("uid")) == ({}, None, None)


def test_memory_is_bounded_by_forgetting_what_has_ended_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "MOST", 10)
    made = account()
    for number in range(30):
        made.observe(seen("created", number, "docker", Identity(str(number))))
        if number % 2:
            made.observe(seen("exited", number + 0.5, "docker", Identity(str(number))))
    made.present("cgroup", {}, 31_000_000)
    assert len(made._containers) == 15
    assert all(container.lives[-1].ended_us is None for container in made._containers.values())


def lives_of(happenings: list[Happening]) -> Iterator[list[Event]]:
    life: list[Event] = []
    for event in events(happenings):
        if event == "created" and life:
            yield life
            life = []
        life.append(event)
    yield life


def test_a_crash_loop_faster_than_sources_are_late_is_reported_life_by_life() -> None:
    made, published = account(), list[Happening]()
    for round_ in range(20):
        for offset, event in enumerate(LIFE):
            published += made.observe(seen(event, round_ * 0.1 + offset * 0.02))
    for round_ in range(20):
        for offset, event in enumerate(LIFE):
            published += made.observe(seen(event, 2.0 + round_ * 0.001 + offset * 0.0001, "bundle"))
    assert list(lives_of(published)) == [LIFE] * 20
