"""What `spazio credentials` writes for leaf servers and for Kubernetes."""

from pathlib import Path

import pytest

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
