"""Subjects: any name becomes one token and comes back."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import subject
from schemas.channel import TELEMETRY_KINDS
from schemas.subject import Names

GOLDEN = {
    "n1": "n1",
    "ip-10-0-0-7.eu-west-1.compute.internal": "ip-10-0-0-7_eu-west-1_compute_internal",
    "my_host": "my=5Fhost",
    "a=b": "a=3Db",
    "..": "__",
    "*": "=2A",
    ">": "=3E",
    "$x": "=24x",
    "a/b:c": "a=2Fb=3Ac",
    "Zürich": "Z=C3=BCrich",
    "日": "=E6=97=A5",
    "😀": "=F0=9F=98=80",
}


@pytest.mark.parametrize(("name", "token"), GOLDEN.items())
def test_tokens_are_those_of_the_contract(name: str, token: str) -> None:
    assert subject.token(name) == token
    assert subject.name(token) == name


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_token_reverses_and_is_one_plain_subject_token(name: str) -> None:
    token = subject.token(name)
    assert re.fullmatch(r"[A-Za-z0-9_=-]+", token)
    assert subject.name(token) == name


@given(st.text("abzAZ09-_=.F5D2E*> é", max_size=12))
def test_what_is_read_as_a_token_is_the_only_one_of_its_name(text: str) -> None:
    try:
        name = subject.name(text)
    except ValueError:
        return
    assert subject.token(name) == text


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "a b",
        "*",
        ">",
        "é",
        "=",
        "a=",
        "=5",
        "=5f",
        "=GG",
        "=41",
        "=2E",
        "=2D",
        "=FF",
        "=C3",
        "=ED=A0=80",
        "a\n",
    ],
)
def test_what_no_name_encodes_to_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match=r"subject token|decode"):
        subject.name(token)


@pytest.mark.parametrize("name", ["n", "a.b", "my_host", "日", 253 * "n"])
def test_a_node_may_have_this_name(name: str) -> None:
    assert subject.is_node_name(name)


@pytest.mark.parametrize("name", ["", " ", "a b", "a\tb", "a\n", "\x00", "a\x7f", "a\u00a0b", "a\u2028b", 254 * "n"])
def test_a_node_may_not_have_this_name(name: str) -> None:
    assert not subject.is_node_name(name)


@given(st.text(max_size=300))
def test_a_name_that_a_node_may_have_is_short_and_printable_in_one_word(name: str) -> None:
    if subject.is_node_name(name):
        assert 1 <= len(name) <= 253
        assert name.split() == [name]


def test_subjects_lie_under_the_prefix() -> None:
    names = Names("lab")
    assert names.of("availability", "*") == "lab.availability.*"
    assert names.node("samples", "a.b") == "lab.samples.a_b"
    assert names.part(7) == "lab.part.7.*.*"
    assert names.part("*", "samples", "n1") == "lab.part.*.samples.n1"
    assert names.dead("lab.samples.n1") == "lab.dead.lab.samples.n1"
    assert names.model == "lab.model"


def test_streams_and_buckets_are_named_for_the_prefix() -> None:
    names = Names("my-lab")
    made = (
        names.telemetry,
        names.estimates,
        names.events,
        names.dead_letters,
        names.availability_bucket,
        names.checkpoints,
    )
    assert made == tuple(
        f"MY-LAB_{suffix}" for suffix in ("TELEMETRY", "ESTIMATES", "EVENTS", "DEAD", "AVAILABILITY", "CHECKPOINTS")
    )
    assert Names().telemetry == "SPAZIO_TELEMETRY"


@given(st.sampled_from(TELEMETRY_KINDS), st.text("ab._=é/", min_size=1), st.integers(0, 255))
def test_kind_and_node_are_found_in_a_subject_as_published_and_as_stored(kind: str, node: str, shard: int) -> None:
    names, token = Names("lab"), subject.token(node)
    assert subject.kind_and_node(names.node(kind, node)) == (kind, token)
    assert subject.kind_and_node(names.part(shard, kind, token)) == (kind, token)
