"""The account of what was published: every state once, whatever is heard twice, late or not at all."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube import ledger
from kube.follow import News
from kube.ledger import Ledger
from schemas.messages.facts import NodeFacts, PodFacts

CREATED = "2026-03-02T10:00:00Z"


def pod(name: str, version: int, *, uid: str = "", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name, "namespace": "s", "uid": uid or f"u-{name}", "resourceVersion": str(version),
            "creationTimestamp": CREATED, "labels": labels,
        },
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Pending"},
    }  # fmt: skip


def node(name: str, version: int, **labels: str) -> dict[str, Any]:
    thing = pod(name, version, **labels)
    del thing["metadata"]["namespace"]
    return thing


def changed(thing: dict[str, Any]) -> News:
    return News("changed", int(thing["metadata"]["resourceVersion"]), thing)


def deleted(thing: dict[str, Any]) -> News:
    return News("deleted", int(thing["metadata"]["resourceVersion"]), thing)


def listed(version: int, *things: dict[str, Any]) -> list[News]:
    return [News("listing", 0, {}), *(News("present", version, thing) for thing in things), News("listed", version, {})]


def hear(account: Ledger[Any], *news: News) -> list[tuple[str, int, bool]]:
    """Return (uid, version, deleted) of what is to be published of these news."""
    for each in news:
        account.hear(each, 1)
    return [(_uid(message), message.version, message.deleted) for message in account.drain()]


def _uid(message: PodFacts | NodeFacts) -> str:
    return message.pod if isinstance(message, PodFacts) else message.uid


def mirror(version: int) -> dict[str, Any]:
    """Return the mirror of a static pod, as the kubelet makes it."""
    thing = pod("proxy", version, uid="0a1b2c3d-0000-4000-8000-00000000000f")
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n", "controller": True}
    thing["metadata"] |= {"annotations": {"kubernetes.io/config.mirror": STATIC}, "ownerReferences": [owner]}
    return thing


STATIC = "8a7d6c5b4a39281706f5e4d3c2b1a098"  # as it is in the name of the control group


def test_a_static_pod_has_the_uid_of_its_control_group_and_comes_again_when_its_mirror_does() -> None:
    account = ledger.pods()
    assert hear(account, *listed(10, mirror(3)), deleted(mirror(11))) == [(STATIC, 3, False), (STATIC, 11, True)]
    again = ledger.pods()
    for message in (message_of(mirror(3)), message_of(mirror(11)).model_copy(update={"deleted": True})):
        again.restore(message)
    assert hear(again, changed(mirror(12)), changed(mirror(13))) == [(STATIC, 12, False)]


def test_the_annotation_of_a_mirror_counts_for_what_belongs_to_a_node_alone() -> None:
    changed_owners: list[Any] = [[], [{"name": "n1"}]]
    changed_digests: list[Any] = [{"kubernetes.io/config.mirror": digest} for digest in ("u-of-another-pod", 3)]
    changes = [{"ownerReferences": each} for each in changed_owners]
    for change in [*changes, *({"annotations": each} for each in [None, *changed_digests])]:
        thing = mirror(3)
        thing["metadata"] |= change
        assert hear(ledger.pods(), changed(thing)) == [(thing["metadata"]["uid"], 3, False)]
    thing = mirror(3)
    thing["metadata"]["ownerReferences"] = [3]
    assert hear(ledger.pods(), changed(thing)) == []


def message_of(thing: dict[str, Any]) -> PodFacts:
    account = ledger.pods()
    account.hear(changed(thing), 1)
    (message,) = account.drain()
    return message


def test_a_list_says_each_object_once_and_a_second_one_only_what_differs() -> None:
    account = ledger.pods()
    assert hear(account, *listed(10, pod("a", 3), pod("b", 4))) == [("u-a", 3, False), ("u-b", 4, False)]
    assert account.version == 10
    again = listed(20, pod("a", 15), pod("b", 16, x="y"), pod("c", 17))
    assert hear(account, *again) == [("u-b", 16, False), ("u-c", 17, False)]


def test_every_change_of_facts_is_reported_in_order_and_a_change_of_nothing_else_is_not() -> None:
    account = ledger.pods()
    news = [changed(pod("a", 5)), changed(pod("a", 6)), changed(pod("a", 7, x="y")), changed(pod("a", 8))]
    assert hear(account, *news) == [("u-a", 5, False), ("u-a", 7, False), ("u-a", 8, False)]
    assert hear(account, News("reached", 30, {})) == []
    assert account.version == 30


def test_the_end_is_reported_once_with_the_last_facts_and_the_version_of_the_end() -> None:
    account = ledger.pods()
    hear(account, changed(pod("a", 5)))
    account.hear(deleted(pod("a", 9, x="y")), 1)
    [message] = account.drain()
    assert (message.version, message.deleted, message.labels) == (9, True, {"x": "y"})
    assert hear(account, deleted(pod("a", 9)), deleted(pod("never seen", 11))) == []


def test_what_a_list_lacks_is_gone_and_an_unfinished_list_says_nothing_of_that() -> None:
    account = ledger.pods()
    hear(account, *listed(10, pod("a", 3), pod("b", 4)))
    assert hear(account, News("listing", 0, {}), News("present", 20, pod("b", 4))) == []
    assert hear(account, News("listing", 0, {}), *listed(21, pod("b", 4))) == [("u-a", 4, True)]
    assert len(account) == 1


def test_a_name_with_a_new_uid_is_another_object_and_the_old_one_ends_first() -> None:
    account = ledger.pods()
    hear(account, *listed(10, pod("db-0", 3, uid="one")))
    assert hear(account, *listed(20, pod("db-0", 15, uid="two"))) == [("one", 4, True), ("two", 15, False)]
    assert hear(account, deleted(pod("db-0", 12, uid="one"))) == []


def test_an_older_state_than_the_one_known_is_passed_over() -> None:
    account = ledger.pods()
    hear(account, changed(pod("a", 5, x="y")))
    late = [changed(pod("a", 5)), changed(pod("a", 4)), changed(pod("a", 3, uid="before"))]
    assert hear(account, *late) == []


def test_a_store_that_went_back_in_time_is_believed() -> None:
    account = ledger.pods()
    hear(account, changed(pod("a", 500, x="new")))
    assert hear(account, *listed(100, pod("a", 50))) == [("u-a", 50, False)]


def test_what_no_message_can_hold_is_logged_once_and_is_neither_reported_nor_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    account = ledger.pods()
    hear(account, *listed(10, pod("a", 3)))
    broken = pod("a", 12)
    broken["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "much"}}
    assert hear(account, *listed(20, broken), changed(broken)) == []
    assert [record.message for record in caplog.records] == ["kube.refused"]
    ended = broken | {"metadata": broken["metadata"] | {"resourceVersion": "30"}}
    assert hear(account, deleted(ended)) == [("u-a", 4, True)]


def test_the_first_readiness_is_kept_while_readiness_comes_and_goes() -> None:
    account = ledger.pods()

    def ready(version: int, status: str, since: str) -> News:
        thing = pod("a", version)
        thing["status"]["conditions"] = [{"type": "Ready", "status": status, "lastTransitionTime": since}]
        return changed(thing)

    account.hear(changed(pod("a", 4)), 1)
    account.hear(ready(5, "True", "2026-03-02T10:00:04Z"), 1)
    account.hear(ready(6, "False", "2026-03-02T10:30:00Z"), 1)
    account.hear(ready(7, "True", "2026-03-02T10:31:00Z"), 1)
    assert [message.initialization_seconds for message in account.drain()] == [None, 4, 4, 4]


def running(version: int, ready: str, since: str) -> dict[str, Any]:
    thing = pod("a", version)
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": since}
    state = {"name": "c", "restartCount": 0, "state": {"running": {"startedAt": "2026-03-02T10:00:03Z"}}}
    thing["status"] = {"phase": "Running", "conditions": [condition], "containerStatuses": [state]}
    return thing


@pytest.mark.parametrize("first", [("True", "2026-03-29T10:00:00Z"), ("False", "2026-03-29T10:00:00Z")])
def test_the_readiness_of_a_pod_that_may_have_been_ready_before_it_was_first_seen_tells_nothing(
    first: tuple[str, str],
) -> None:
    account = ledger.pods()
    account.hear(changed(running(5, *first)), 1)
    account.hear(changed(running(6, "False", "2026-03-29T10:01:00Z")), 1)
    account.hear(changed(running(7, "True", "2026-03-29T10:02:00Z")), 1)
    assert {message.initialization_seconds for message in account.drain()} == {None}


@pytest.mark.parametrize("how", ["same", "dump", "restore", "copy"])
def test_a_pod_that_was_seen_starting_tells_when_it_was_first_ready_however_late(how: str) -> None:
    account = ledger.pods()
    account.hear(changed(pod("a", 4)), 1)
    account.hear(changed(running(5, "False", "2026-03-02T10:00:01Z")), 1)
    published = account.drain()
    if how != "same":
        other = ledger.pods()
        if how == "dump":
            for line in account.dump():
                other.load(line.partition(b" ")[2])
        for message in published * (how == "restore"):
            other.restore(message)
        other.repair(published[:1] * (how == "copy"), 1)
        account = other
        account.drain()
    account.hear(changed(running(6, "True", "2026-03-02T10:10:00Z")), 1)
    assert [message.initialization_seconds for message in account.drain()] == [600]


def test_a_time_that_is_in_doubt_is_found_again() -> None:
    account = ledger.pods()
    account.hear(changed(running(5, "True", "2026-03-02T10:00:07Z")), 1)
    right = account.drain()[0]
    assert right.initialization_seconds == 7
    other = ledger.pods()
    other.repair([right.model_copy(update={"initialization_seconds": 1e6})], 1)
    for news in listed(9, running(5, "True", "2026-03-02T10:00:07Z")):
        other.hear(news, 1)
    assert [message.initialization_seconds for message in other.drain()] == [7]


def test_an_account_goes_on_from_a_dump_and_what_was_reported_after_it() -> None:
    first = ledger.pods()
    hear(first, *listed(10, pod("a", 3), pod("b", 4), pod("c", 5)))
    dump = list(first.dump())
    for each in (changed(pod("a", 12, x="y")), deleted(pod("b", 13)), changed(pod("d", 14)), deleted(pod("d", 15))):
        first.hear(each, 1)
    second = ledger.pods()
    for line in dump:
        second.load(line.partition(b" ")[2])
    for message in first.drain():
        second.restore(message)
    # Everything behind version 10 is heard again.
    again = [changed(pod("a", 12, x="y")), deleted(pod("b", 13)), changed(pod("d", 14)), deleted(pod("d", 15))]
    assert hear(second, *again, changed(pod("c", 16, z="z"))) == [("u-c", 16, False)]
    assert hear(second, *listed(20, pod("a", 12, x="y"), pod("c", 16, z="z"))) == []


def copies(version: int, *things: dict[str, Any]) -> list[NodeFacts]:
    """Return what a bucket has that was written when the API server had these nodes."""
    account = ledger.nodes("p")
    for news in listed(version, *things):
        account.hear(news, 1)
    return account.drain()


def published_of(changes: list[NodeFacts]) -> list[tuple[str, int, bool]]:
    return [(facts.uid, facts.version, facts.deleted) for facts in changes]


def test_a_copy_learns_what_it_lacks_and_what_it_has_too_much_is_left_to_a_new_list() -> None:
    account = ledger.nodes("p")
    hear(account, *listed(10, node("a", 3), node("b", 4), node("c", 5)))
    changes = account.repair(copies(10, node("b", 4), node("c", 5, x="old"), node("gone", 6)), 7)
    assert published_of(changes) == [("u-a", 3, False), ("u-c", 5, False)]
    assert [(facts.at_us, facts.labels) for facts in changes] == [(7, {})] * 2
    assert account.version == 0
    assert hear(account, *listed(20, node("a", 3), node("b", 4), node("c", 5))) == [("u-gone", 7, True)]


def test_a_copy_with_another_object_of_the_same_name_learns_that_this_one_ended() -> None:
    account = ledger.nodes("p")
    hear(account, *listed(10, node("a", 3)))
    assert published_of(account.repair(copies(10, node("a", 2, uid="u-old")), 7)) == [
        ("u-old", 2, True),
        ("u-a", 3, False),
    ]
    assert account.version == 10


def test_an_account_that_agrees_with_its_copy_needs_no_list() -> None:
    account = ledger.nodes("p")
    hear(account, *listed(10, node("a", 3)))
    assert account.repair(copies(10, node("a", 3)), 7) == []
    assert account.version == 10


def test_what_a_copy_is_ahead_of_the_account_is_reported_when_it_is_heard_again() -> None:
    account = ledger.nodes("p")
    hear(account, *listed(10, node("a", 3)))
    assert account.repair(copies(12, node("a", 3), node("b", 12)), 7) == []
    assert account.version == 10
    assert hear(account, changed(node("b", 12)), deleted(node("b", 13))) == [("u-b", 12, False), ("u-b", 13, True)]


def test_what_a_copy_is_ahead_of_the_account_and_ends_unheard_is_reported_to_have_ended() -> None:
    account = ledger.nodes("p")
    hear(account, *listed(10, node("a", 3)))
    account.repair(copies(12, node("a", 3), node("b", 12)), 7)
    assert hear(account, *listed(20, node("a", 3))) == [("u-b", 12, True)]


def test_doubt_survives_a_dump() -> None:
    account = ledger.nodes("p")
    account.repair(copies(10, node("a", 3)), 7)
    second = ledger.nodes("p")
    for line in account.dump():
        second.load(line.partition(b" ")[2])
    assert hear(second, *listed(20, node("a", 3))) == [("u-a", 3, False)]


def test_names_and_facts_with_blanks_survive_a_dump() -> None:
    account = ledger.pods()
    hear(account, changed(pod("a", 3, note="two words\nand lines")))
    second = ledger.pods()
    [line] = account.dump()
    assert b"\n" not in line
    second.load(line.partition(b" ")[2])
    assert list(second.dump()) == [line]


STEP = st.tuples(st.sampled_from("abc"), st.booleans(), st.sampled_from("yz"))
LIFE = st.tuples(st.integers(0, 20), st.integers(0, 20), st.booleans())


@given(st.lists(STEP, max_size=20), st.lists(LIFE, max_size=6))
def test_killed_anywhere_every_state_is_reported_once(steps: list[Any], lives: list[tuple[int, int, bool]]) -> None:
    """A life hears so much, of which so much is stored; the next one hears everything since the last dump again."""
    history, living = list[News](), dict[str, str]()
    for version, (name, ends, label) in enumerate(steps, 1):
        if ends and name in living:
            history.append(deleted(pod(name, version, uid=living.pop(name))))
        else:
            uid = living.setdefault(name, f"{name}{version}")
            history.append(changed(pod(name, version, uid=uid, x=label)))
    undisturbed = hear(ledger.pods(), *history)
    stored, dump, dumped, position = list[PodFacts](), list[bytes](), 0, 0
    for heard, taken, saves in [*lives, (len(history), 10**6, False)]:
        life = ledger.pods()
        life.version = position
        for line in dump:
            life.load(line.partition(b" ")[2])
        for message in stored[dumped:]:
            life.restore(message)
        end = min(position + heard, len(history))
        for each in history[position:end]:
            life.hear(each, 1)
        messages = life.drain()
        stored += messages[:taken]
        if saves and taken >= len(messages):
            dump, dumped, position = list(life.dump()), len(stored), end
    assert [(message.pod, message.version, message.deleted) for message in stored] == undisturbed
