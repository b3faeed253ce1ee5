"""The audit's rule on licences, and that what is installed keeps it."""

import importlib.util
import json
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


GOOD: dict[str, Any] = {"name": "P_p", "version": "1", "vulns": []}
VULNERABLE = GOOD | {"vulns": [{"id": "CVE-1"}]}
SKIPPED = {"name": "q", "skip_reason": "not found"}
WANTED = {("p-p", "1"), ("q", "2")}


@pytest.mark.parametrize(
    ("dependencies", "status", "words"),
    [
        ([GOOD, {"name": "q", "version": "2", "vulns": []}], 0, ["none is known of the 2 packages, all of which were"]),
        ([VULNERABLE, {"name": "q", "version": "2", "vulns": []}], 1, ["known: P_p 1: CVE-1"]),
        ([VULNERABLE, SKIPPED], 1, ["known: P_p 1: CVE-1", "NOT LOOKED UP: 1 of 2 packages (q)"]),
        ([GOOD, SKIPPED], 3, ["NOT LOOKED UP: 1 of 2 packages (q)"]),
        ([GOOD, {"name": "q", "version": "1", "vulns": []}], 3, ["NOT LOOKED UP: 1 of 2 packages (q)"]),
        ([], 3, ["NOT LOOKED UP: 2 of 2 packages (p-p, q)"]),
    ],
)
def test_none_is_known_only_if_every_package_was_looked_up(
    dependencies: list[dict[str, Any]], status: int, words: list[str]
) -> None:
    finding = AUDIT.judgement(dependencies, WANTED)
    assert finding.status == status
    assert all(word in finding.sentence for word in words)
    assert ("none is known" in finding.sentence) is (status == 0)


# What pip-audit may do: the end of a script that has the file for its report in $report.
ANSWERS = {
    "answers": ("cat reported > $report", 0),
    "finds some": ('sed \'s/"vulns": \\[\\]/"vulns": [{"id": "CVE-1"}]/\' reported > $report; exit 1', 1),
    "does not answer": ("echo 'no route to host' >&2; exit 1", 3),
    "says nothing": ("exit 0", 3),
    "skips all": ('echo \'{"dependencies": [{"name": "q", "skip_reason": "?"}]}\' > $report', 3),
    "reports nothing": ("echo '{\"dependencies\": []}' > $report", 3),
    "fails after its report": ("cat reported > $report; exit 2", 3),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_look_up_that_did_not_happen_is_not_mistaken_for_one_that_found_nothing(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, status = ANSWERS[answer]
    for name in AUDIT.REQUIREMENTS:
        (tmp_path / name).write_text("q==2 \\\n    --hash=sha256:0\n")
    (tmp_path / "reported").write_text(json.dumps({"dependencies": [{"name": "q", "version": "2", "vulns": []}]}))
    tools = {
        "cyclonedx-py": "exit 0",
        "pip-audit": f'while [ "$1" != --output ]; do shift; done; report=$2\n{script}',
    }
    for name, text in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    old = tmp_path / "audit" / "vulnerabilities.json"
    old.parent.mkdir()
    old.write_text('{"dependencies": []}')
    for name, path in {"ROOT": tmp_path, "TOOLS": tmp_path, "OUT": old.parent}.items():
        monkeypatch.setattr(AUDIT, name, path)
    assert AUDIT.main() == status
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("vulnerabilities"))
    assert ("NOT LOOKED UP" in line) is (status == 3)
    assert ("none is known" in line) is (status == 0)
    assert old.exists() is (status != 3)


def test_everything_installed_has_a_licence_that_is_allowed() -> None:
    lines, refused = AUDIT.licences(each.metadata for each in metadata.distributions())
    assert len(lines) > 20
    assert refused == []
