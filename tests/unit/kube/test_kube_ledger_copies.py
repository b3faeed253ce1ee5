"""An account that goes on after its process has ended: from a dump, from a copy of what was published, or from both."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kube import ledger
from kube.follow import News
from schemas.messages.facts import NodeFacts, PodFacts
from tests.unit.kube.news import changed, deleted, hear, listed, node, pod


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
