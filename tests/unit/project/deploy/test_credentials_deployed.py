"""What `spazio credentials` writes for leaf servers and for Kubernetes."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from schemas import role
from schemas.channel import AGENT_KINDS
from spazio.credentials import claims, command
from tests.support.server.secured import NAMES


def encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def objects(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the objects for Kubernetes by their names."""
    listed = yaml.safe_load_all((folder / "kubernetes.yaml").read_text())
    return {each["metadata"]["name"]: each for each in listed if "data" in each}


def test_each_node_has_a_secret_of_its_own_unless_none_can_have_its_name(tmp_path: Path) -> None:
    lines = list(command.issue(tmp_path, NAMES, command.Wanted(["a.b", "c", "My_host", "x" * 200])))
    made = {name: each for name, each in objects(tmp_path).items() if name.startswith("spazio-node-")}
    assert made.keys() == {"spazio-node-a.b", "spazio-node-c", "spazio-node-" + "x" * 200}
    assert {each["metadata"]["namespace"] for each in made.values()} == {"spazio-agents"}
    assert made["spazio-node-c"]["data"] == {"nats.creds": encoded(tmp_path / "nodes" / "c.creds")}
    assert [line for line in lines if "leaves out" in line] == [
        "kubernetes.yaml leaves out My_host, which no Secret can be named after"
    ]


@pytest.mark.slow
def test_every_secret_has_the_authority_of_the_server_and_one_its_certificate(tmp_path: Path) -> None:
    lines = list(command.issue(tmp_path, NAMES, command.Wanted(["c"])))
    assert [line for line in lines if "no certificate of the server" in line]
    assert "spazio-nats-tls" not in objects(tmp_path)
    tls = tmp_path / "tls" / "nats"
    tls.mkdir(parents=True)
    for name in ("ca.crt", "ca.key", "server.crt", "server.key", "client.key"):
        (tls / name).write_text(name)
    assert not [line for line in command.issue(tmp_path, NAMES, command.Wanted()) if "no certificate" in line]
    made = objects(tmp_path)
    names = ("ca.crt", "server.crt", "server.key")
    assert made["spazio-nats-tls"]["data"] == {name: encoded(tls / name) for name in names}
    assert made["spazio-nats-tls"]["metadata"]["namespace"] == "spazio"
    secrets = [each for each in made.values() if "nats.creds" in each["data"]]
    assert len(secrets) == len(role.ROLES) + 1
    assert all(each["data"]["ca.crt"] == encoded(tls / "ca.crt") for each in secrets)
    assert encoded(tls / "ca.key") not in (tmp_path / "kubernetes.yaml").read_text()


@pytest.mark.slow
def test_of_a_server_of_others_secrets_have_the_authority_alone(tmp_path: Path) -> None:
    (tmp_path / "tls" / "nats").mkdir(parents=True)
    (tmp_path / "tls" / "nats" / "ca.crt").write_text("theirs")
    command.issue(tmp_path, NAMES, command.Wanted(["c"]))
    assert objects(tmp_path)["spazio-node-c"]["data"].keys() == {"nats.creds", "ca.crt"}
    assert "spazio-nats-tls" not in objects(tmp_path)


def test_a_leaf_server_knows_the_nodes_and_learns_of_revocations(tmp_path: Path) -> None:
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
