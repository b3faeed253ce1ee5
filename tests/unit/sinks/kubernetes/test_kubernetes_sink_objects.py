"""The account of objects: what lists and watches say, and what writes are answered, in whichever order they come."""

from typing import Any

from kube.follow import News
from sinks.kubernetes.objects import Objects


def thing(name: str, version: int, value: object = 0, space: str = "") -> dict[str, Any]:
    metadata = {"name": name, "uid": f"u-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata | ({"namespace": space} if space else {}), "value": value}


def opened() -> Objects[int]:
    return Objects("things", lambda result: int(result["value"]))


def hear(account: Objects[int], *news: tuple[Any, int, dict[str, Any]]) -> dict[str, int]:
    for each in news:
        account.hear(News(*each))
    return dict(account)


def test_nothing_is_known_before_a_list_is_whole_and_a_list_that_breaks_off_leaves_what_was_known() -> None:
    account = opened()
    assert hear(account, ("listing", 0, {}), ("present", 9, thing("a", 3, 1))) == {}
    whole = [account.whole]
    assert hear(account, ("listing", 0, {}), ("present", 9, thing("b", 4, 2)), ("listed", 9, {})) == {"b": 2}
    assert [*whole, account.whole] == [False, True]
    assert hear(account, ("listing", 0, {}), ("present", 19, thing("c", 12, 3))) == {"b": 2}
    assert hear(account, ("present", 19, thing("b", 12, 5)), ("listed", 19, {})) == {"b": 5, "c": 3}


def test_an_event_that_is_older_than_the_answer_to_a_write_changes_nothing() -> None:
    account = opened()
    account.put(thing("a", 7, 7))
    assert hear(account, ("changed", 5, thing("a", 5, 5))) == {"a": 7}
    assert hear(account, ("changed", 8, thing("a", 8, 8))) == {"a": 8}
    assert hear(account, ("deleted", 9, thing("a", 9, 8)), ("reached", 70, {})) == {}


def test_what_was_written_after_a_list_was_made_outlives_it_and_what_it_lacks_does_not() -> None:
    account = opened()
    hear(account, ("listing", 0, {}), ("present", 5, thing("gone", 2)), ("listed", 5, {}), ("listing", 0, {}))
    account.put(thing("new", 30, 3))
    assert hear(account, ("listed", 20, {})) == {"new": 3}


def test_after_a_server_went_back_to_an_older_state_a_list_is_believed() -> None:
    account = opened()
    hear(account, ("listing", 0, {}), ("present", 700, thing("a", 600, 7)), ("listed", 700, {}))
    assert hear(account, ("listing", 0, {}), ("present", 90, thing("a", 3, 1)), ("listed", 90, {})) == {"a": 1}
    assert hear(account, ("changed", 91, thing("a", 91, 2))) == {"a": 2}


def test_objects_of_namespaces_are_distinguished_and_unreadable_ones_are_left_out() -> None:
    account = opened()
    account.put(thing("a", 1, 1, "one"))
    account.put(thing("a", 2, 2, "two"))
    assert dict(account) == {"one/a": 1, "two/a": 2}
    assert account.get("two/a") == 2
    account.put(thing("a", 3, "no number", "two"))
    assert (account.get("two/a"), len(account)) == (None, 1)
    account.drop("one/a")
    account.drop("nobody")
    assert len(account) == 0
