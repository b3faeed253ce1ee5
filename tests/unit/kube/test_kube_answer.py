"""What an API server's refusals mean, and what they tell people to do."""

import json
from typing import Any

import pytest

from kube import answer, apply
from kube.answer import Away, Conflict, Forbidden, Gone, Invalid, Missing, Trouble, Unknown, Unserved


def trouble(status: int, content: Any, verb: str = "patch", resource: str = "nodes/status") -> Trouble:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return answer.trouble(status, body, {"Retry-After": "7"}, verb, resource)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, Invalid), (401, Unknown), (403, Forbidden), (409, Conflict), (410, Gone), (422, Invalid), (429, Away),
     (500, Trouble), (503, Away)],
)  # fmt: skip
def test_a_status_is_one_kind_of_trouble_and_its_message_is_reported(status: int, kind: type[Trouble]) -> None:
    result = trouble(status, {"kind": "Status", "message": "so it is"})
    assert type(result) is kind
    assert "so it is" in result.reason
    assert result.pause_seconds == 7


@pytest.mark.parametrize(
    "body", [b"", b"garbage", b"[]", b"null", b"1", b'{"message": 1}', b'{"details": []}', b"\xff"]
)
def test_garbage_instead_of_a_status_is_still_an_answer(body: bytes) -> None:
    for status, kind in ((404, Unserved), (409, Conflict), (403, Forbidden), (418, Trouble)):
        assert type(trouble(status, body)) is kind


def test_an_object_that_is_missing_is_distinguished_from_a_kind_that_is() -> None:
    gone = trouble(404, {"message": 'nodes "n1" not found', "details": {"name": "n1", "kind": "nodes"}})
    assert type(gone) is Missing
    assert not gone.lasting
    unknown = trouble(404, b"404 page not found\n", "list", "nodemetrics.spazio.io")
    assert type(unknown) is Unserved
    assert unknown.lasting
    assert "404 page not found" in unknown.reason
    assert unknown.reason.endswith("CustomResourceDefinition")


def test_whose_fields_are_in_conflict_is_reported() -> None:
    causes = [
        {"reason": "FieldManagerConflict", "message": 'conflict with "kubelet" with subresource "status" using v1'},
        {"reason": "FieldManagerConflict", "message": 'conflict with "kubelet" with subresource "status" using v1'},
        {"reason": "FieldManagerConflict", "message": 'conflict with "koord-manager" using v1'},
    ]
    result = trouble(409, {"message": "Apply failed", "details": {"causes": causes}})
    assert isinstance(result, Conflict)
    assert result.managers == ("koord-manager", "kubelet")
    other = trouble(409, {"message": "the object has been modified", "details": {"name": "n1"}})
    assert isinstance(other, Conflict)
    assert other.managers == ()


@pytest.mark.parametrize(
    ("verb", "resource", "message", "asked"),
    [
        ("list", "nodes", "verbs list and watch on nodes", "can-i list nodes --all"),
        ("patch", "nodes/status", "verb patch on nodes/status", "can-i patch nodes --subresource=status"),
        (
            "create",
            "nodemetrics.spazio.io",
            "verb create on nodemetrics.spazio.io",
            "can-i create nodemetrics.spazio.io",
        ),
    ],
)
def test_who_is_forbidden_learns_which_rule_is_missing(verb: str, resource: str, message: str, asked: str) -> None:
    reason = trouble(403, {"message": "no"}, verb, resource).reason
    assert message in reason
    assert asked in reason


def test_an_apply_that_would_make_an_object_lacks_the_verb_that_the_server_names() -> None:
    reason = trouble(403, {"message": 'nodemetrics "n1" is forbidden: User "x" cannot create resource "n"'}).reason
    assert "with the verb create on" in reason


def test_what_we_have_applied_is_distinguished_from_what_others_have() -> None:
    def entry(manager: str, operation: str, subresource: str = "status") -> dict[str, Any]:
        fields: dict[str, Any] = {"f:status": {"f:capacity": {"f:kubernetes.io/mid-cpu": {}}}}
        return {"manager": manager, "operation": operation, "subresource": subresource, "fieldsV1": fields}

    path = ("status", "capacity", "kubernetes.io/mid-cpu")
    cases: list[tuple[Any, bool]] = [
        ([entry("spazio", "Apply")], True),
        ([entry("kubelet", "Update"), entry("spazio", "Apply")], True),
        ([entry("spazio", "Update")], False),
        ([entry("spazio", "Apply", "")], False),
        ([entry("koord", "Apply")], False),
        ([], False),
        (None, False),
    ]
    for fields, owned in cases:
        assert apply.owns({"metadata": {"managedFields": fields}}, "status", *path) is owned
    assert not apply.owns({"metadata": {"managedFields": [entry("spazio", "Apply")]}}, "status", "spec")
