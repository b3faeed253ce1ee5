"""The audit's rule on licences, and that what is installed keeps it."""

import importlib.util
from email.message import Message
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest


def audit() -> Any:
    path = Path(__file__).parents[3] / ".ci" / "audit.py"
    spec = importlib.util.spec_from_file_location("audit", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


AUDIT = audit()


def package(**fields: str) -> Message:
    made = Message()
    for name, value in {"Name": "p", "Version": "1", **fields}.items():
        made[name.replace("_", "-")] = value
    return made


@pytest.mark.parametrize(
    ("expression", "good"),
    [
        ("MIT", True),
        ("Apache-2.0 AND MIT", True),
        ("Apache-2.0 OR GPL-3.0-only", True),
        ("Apache-2.0 AND (MIT OR GPL-3.0-only)", True),
        ("MIT AND GPL-3.0-only", False),
        ("AGPL-3.0-or-later", False),
        ("unknown", False),
    ],
)
def test_every_part_of_an_expression_needs_an_allowed_choice(expression: str, good: bool) -> None:
    assert AUDIT.allowed(expression) is good


def test_a_licence_is_read_from_expression_classifier_or_text() -> None:
    assert AUDIT.licence(package(License_Expression="ISC", License="GPL")) == "ISC"
    assert AUDIT.licence(package(Classifier="License :: OSI Approved :: MIT License")) == "MIT"
    assert AUDIT.licence(package(License="Apache 2.0")) == "Apache-2.0"
    assert AUDIT.licence(package()) == "unknown"


def test_a_package_under_another_licence_is_named() -> None:
    lines, refused = AUDIT.licences([package(), package(Name="q", License_Expression="MIT")])
    assert lines == ["p 1: unknown", "q 1: MIT"]
    assert refused == ["p 1: unknown"]


def test_a_package_that_was_not_looked_up_fails_the_audit_as_a_vulnerable_one_does() -> None:
    good = {"name": "p", "version": "1", "vulns": []}
    assert AUDIT.judgement([good]) == ""
    assert "p 1: CVE-1" in AUDIT.judgement([good | {"vulns": [{"id": "CVE-1"}]}])
    assert "1 of 2 packages were not looked up" in AUDIT.judgement([good, {"name": "q", "skip_reason": "not found"}])


def test_everything_installed_has_a_licence_that_is_allowed() -> None:
    lines, refused = AUDIT.licences(each.metadata for each in metadata.distributions())
    assert len(lines) > 20
    assert refused == []
