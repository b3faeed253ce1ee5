"""What was reported before a restart is not reported again."""

from typing import Any

import pytest

from producers.containers.merge import Merge
from producers.containers.published import Happening, LastEvent, Memory
from producers.containers.registry import Registry
from producers.containers.sources.source import Event, Identity
from tests.unit.producers.containers.lives import ID, account, events, listing, seen


def events_before(*containers: tuple[str, Event], rebooted: bool = False) -> dict[str, LastEvent]:
    return {
        container: LastEvent(Happening(event, Identity(container, name=f"pod-{container}"), ("docker",), 5), rebooted)
        for container, event in containers
    }


def test_what_was_listed_is_held_back_until_it_is_known_what_was_reported_and_live_events_are_not() -> None:
    made = account(settled=False)
    assert made.present("cgroup", listing("old", "new"), 1_000_000) == []
    assert events(made.observe(seen("created", 1.1, identity=Identity("live")))) == ["created"]
    released = made.remember(Memory(events_before(("old", "started"), ("gone", "created"))), 1_200_000)
    assert [(item.event, item.identity.container) for item in released] == [("created", "new"), ("started", "new")]
    ended = made.settle(1_300_000)
    assert [(item.event, item.identity.container) for item in ended] == [("exited", "gone"), ("deleted", "gone")]
    assert ended[0].identity.name == "pod-gone"


def test_only_what_was_not_reported_yet_of_a_container_is_reported() -> None:
    made = account(settled=False)
    made.present("cgroup", listing("a", "b"), 1_000_000)
    made.observe(seen("exited", 1.1, identity=Identity("b")))
    released = made.remember(Memory(events_before(("a", "created"), ("b", "started"))), 1_200_000)
    assert [(item.event, item.identity.container) for item in released] == [("started", "a"), ("exited", "b")]
    assert released[0].identity.name == "pod-a"


def test_a_source_that_lists_after_the_memory_has_come_repeats_nothing() -> None:
    made = account(settled=False)
    made.remember(Memory(events_before(("old", "started"))), 1_000_000)
    assert made.present("docker", listing("old"), 1_100_000) == []
    assert made.settle(1_200_000) == []
    assert events(made.present("docker", {}, 2_000_000)) == ["exited", "deleted"]


def test_a_container_that_begins_again_while_nobody_looked_ends_first() -> None:
    made = account(settled=False)
    made.remember(Memory(events_before(("old", "started"))), 1_000_000)
    assert events(made.observe(seen("created", 1.5, identity=Identity("old")))) == ["exited", "deleted", "created"]
    assert made.settle(2_000_000) == []


def test_whatever_ran_before_a_reboot_has_ended() -> None:
    made = account(settled=False)
    made.present("cgroup", listing("same"), 1_000_000)
    published = made.remember(Memory(events_before(("same", "started"), rebooted=True)), 1_100_000)
    assert events(published) == ["exited", "deleted", "created", "started"]
    assert made.settle(1_200_000) == []


def test_of_pods_that_ran_when_the_node_was_last_heard_of_the_containers_are_not_reported_again() -> None:
    made = account(settled=False)
    in_pod = {name: (Identity(name, pod=pod), True) for name, pod in (("a", "old"), ("b", "new"), ("c", "old"))}
    made.present("cgroup", in_pod, 1_000_000)
    before = events_before(("c", "deleted"), ("old", "started"))
    released = made.remember(Memory(before, {"old": 1}), 1_100_000)
    assert {item.identity.container for item in released} == {"b", "c"}
    assert made.settle(1_200_000) == [], "a pod's own id is no container that has gone"
    assert events(made.observe(seen("exited", 2, identity=Identity("a")))) == ["exited"]


def test_a_container_that_began_in_an_older_pod_meanwhile_is_reported() -> None:
    made = account(settled=False)
    made.present("cgroup", {"b": (Identity("b", pod="old"), True)}, 1_000_000)
    first = LastEvent(Happening("started", Identity("a", pod="old"), ("cgroup",), 500_000))
    published = made.remember(Memory({"a": first}, {"old": 1}, 900_000), 1_100_000)
    assert [(item.identity.container, item.event) for item in published] == [("b", "created"), ("b", "started")]
    gone = made.settle(1_200_000)
    assert [(item.identity.container, item.event) for item in gone] == [("a", "exited"), ("a", "deleted")]


def published(event: Event, container: str, at_us: int, **fields: Any) -> tuple[str, LastEvent]:
    identity = Identity(container, pod="old", **fields)
    return container, LastEvent(Happening(event, identity, ("bundle",), at_us))


def announced(memory: Memory, *listed: Identity) -> set[str]:
    made = account(settled=False)
    made.present("bundle", {identity.container: (identity, True) for identity in listed}, 2_000_000)
    return {item.identity.container for item in made.remember(memory, 2_100_000) if item.event == "started"}


def in_pod(container: str, name: str | None = None, *, sandbox: bool | None = False) -> Identity:
    return Identity(container, pod="old", container_name=name, sandbox=sandbox)


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize(("event", "running"), [("deleted", 2), ("started", 3), ("created", 2)])
def test_siblings_of_a_container_that_crashes_again_and_again_are_not_reported_again(
    names: bool, event: Event, running: int
) -> None:
    web, log, sidecar = ("web", "log", "sidecar") if names else (None, None, None)
    before = dict([published("deleted", "c1", 100, container_name=sidecar), published(event, "c2", 200)])
    pause = in_pod("p", sandbox=True)
    assert announced(Memory(before, {"old": running}, 300), pause, in_pod("a", web), in_pod("b", log)) == set()


def test_a_container_that_took_the_place_of_another_meanwhile_is_reported_and_its_older_siblings_are_not() -> None:
    before = dict([published("started", "c1", 100, container_name="sidecar")])
    listed = (in_pod("p", sandbox=True), in_pod("a", "web"), in_pod("c2", "sidecar"))
    assert announced(Memory(before, {"old": 2}, 300), *listed) == {"c2"}


def test_a_container_that_ended_after_the_last_block_of_usage_is_among_those_that_ran_in_it() -> None:
    before = dict([published("deleted", "c1", 400)])
    assert announced(Memory(before, {"old": 1}, 300), in_pod("c2")) == {"c2"}
    assert announced(Memory(before, {"old": 2}, 300), in_pod("a")) == set()


def test_of_a_pod_that_has_an_event_of_its_pause_container_no_container_is_older() -> None:
    before = dict([published("started", "p", 100, sandbox=True)])
    listed = (in_pod("p", sandbox=True), in_pod("a"))
    assert announced(Memory(before, {"old": 2}, 300), *listed) == {"a"}, "not reported yet when the agent ended"


def test_containers_of_a_pod_complete_each_other() -> None:
    registry = Registry()
    made = Merge(registry)
    sandbox = Identity("s", pod="uid", sandbox=True, namespace="shop", name="web-0", workload="shop/web")
    made.observe(seen("created", 1, "bundle", sandbox))
    (created,) = made.observe(seen("created", 2, "cgroup", Identity("c", pod="uid")))
    assert (created.identity.namespace, created.identity.workload) == ("shop", "shop/web")
    assert created.identity.sandbox is None
    identity = registry.get("uid")
    assert identity is not None
    assert (identity.name, identity.workload) == ("web-0", "shop/web")
    registry.drop("s")
    assert registry.get("uid") == identity


def test_a_container_that_was_created_and_not_started_still_waits_for_its_start_after_a_restart() -> None:
    created = LastEvent(Happening("created", Identity(ID, image="web"), ("docker",), 1))
    made = account(settled=False)
    published = made.present("docker", listing(ID, running=False), 1_000_000)
    published += made.remember(Memory({ID: created}), 1_100_000) + made.settle(2_000_000)
    assert published == []
    happenings = made.observe(seen("started", 3)) + made.observe(seen("started", 3.1, "docker"))
    assert [(each.event, each.identity.image) for each in happenings] == [("started", "web")]
    assert events(made.observe(seen("exited", 4))) == ["exited"]


def test_a_container_that_was_created_and_not_started_is_deleted_once_no_list_has_it_after_a_restart() -> None:
    created = LastEvent(Happening("created", Identity(ID), ("docker",), 1))
    made = account(settled=False)
    made.present("docker", listing(ID, running=False), 1_000_000)
    made.remember(Memory({ID: created}), 1_100_000)
    made.settle(2_000_000)
    assert "deleted" in events(made.present("docker", {}, 3_000_000))
