"""What `spazio credentials` writes for leaf servers and for Kubernetes."""

from pathlib import Path

import pytest

from schemas.channel import AGENT_KINDS
from spazio.credentials import claims, command, kubernetes
from tests.support.secured import NAMES


def test_a_folder_with_more_nodes_than_a_secret_holds_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "SECRET_BYTES", 1500)
    assert not [line for line in command.issue(tmp_path, NAMES, command.Wanted(["a"])) if "Secret" in line]
    assert [line for line in command.issue(tmp_path, NAMES, command.Wanted(["b"])) if "larger than a Secret" in line]


def test_a_leaf_server_knows_the_nodes_and_is_told_of_revocations(tmp_path: Path) -> None:
    command.issue(tmp_path, NAMES, command.Wanted(["n1"]))
    leaf = (tmp_path / "leaf.conf").read_text()
    named = {line.split(":")[0].strip() for line in leaf.splitlines() if line.startswith("  ")}
    assert claims.read((tmp_path / "nodes" / "n1.creds").read_text().splitlines()[1])["iss"] in named
    assert claims.read((tmp_path / "roles" / "cache.creds").read_text().splitlines()[1])["iss"] not in named
    command.issue(tmp_path, NAMES, command.Wanted(revoke=["n1"]))
    assert (tmp_path / "leaf.conf").read_text() != leaf


def test_a_region_has_the_telemetry_of_its_nodes_and_ends_with_its_revocation(tmp_path: Path) -> None:
    command.issue(tmp_path, NAMES, command.Wanted(["a.b", "c"], region="r1"))
    command.issue(tmp_path, NAMES, command.Wanted(["d"]))
    file = tmp_path / "regions" / "r1.creds"

    def granted() -> dict[str, list[str]]:
        own = claims.read(file.read_text().splitlines()[1])["nats"]
        return {side: own[side]["allow"] for side in ("pub", "sub")}

    assert {subject.split(".")[-1] for subject in granted()["pub"]} == {"a_b", "c"}
    assert len(granted()["pub"]) == 2 * len(AGENT_KINDS)
    assert granted()["sub"] == ["_INBOX_region.>", "_INBOX_node.a_b.>", "_INBOX_node.c.>", "spazio.model"]
    command.issue(tmp_path, NAMES, command.Wanted(["c", "e"], region="r1"))
    assert {subject.split(".")[-1] for subject in granted()["pub"]} == {"c", "e"}
    assert command.issue(tmp_path, NAMES, command.Wanted(revoke=["r1"]))
    assert not file.exists()


def test_a_region_needs_its_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run("spazio", tmp_path, None, (), region="r1", rotate=False, retire=False) == 2
    assert "--nodes FILE" in capsys.readouterr().err
