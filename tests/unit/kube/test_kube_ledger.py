"""The account of what was published: every state once, whatever is heard twice, late or not at all."""

from typing import Any

import pytest

from kube import ledger
from kube.follow import News
from schemas.messages.facts import PodFacts
from tests.unit.kube.news import changed, deleted, hear, listed, pod


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
