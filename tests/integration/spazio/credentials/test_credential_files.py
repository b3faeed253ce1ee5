"""The files that `spazio credentials` writes: whose they are, and what a second run keeps."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from bus.access.credential import Credential
from schemas import role
from spazio.credentials import authority, claims, command
from tests.support.server.secured import NAMES


def test_only_the_owner_may_look_into_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    command.issue(folder, NAMES, command.Wanted(nodes=["a.b", "my_host"]))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {"operator.nk", "account.nk", "server.conf", "kubernetes.yaml", "nodes/a_b.creds"} <= files
    assert {"nodes/my=5Fhost.creds"} | {f"roles/{each.name}.creds" for each in role.ROLES} <= files
    for path in folder.rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_a_second_run_keeps_everything_and_adds_what_is_new(tmp_path: Path) -> None:
    command.issue(tmp_path / "c", NAMES, command.Wanted(nodes=["n1"]))
    before = {path: path.read_bytes() for path in (tmp_path / "c").rglob("*.*") if path.is_file()}
    command.issue(tmp_path / "c", NAMES, command.Wanted())
    assert {path: path.read_bytes() for path in before} == before
    lines = command.issue(tmp_path / "c", NAMES, command.Wanted(nodes=["n2"]))
    changed = {path.name for path, content in before.items() if path.read_bytes() != content}
    assert changed == {"issued.json", "kubernetes.yaml"}, "a new node changes nothing for the server"
    assert (tmp_path / "c" / "nodes" / "n2.creds").exists()
    assert not [line for line in lines if "reload" in line]


def test_the_kubernetes_objects_hold_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    command.issue(folder, NAMES, command.Wanted(nodes=["ip-10.eu", "my host"[:2]]))
    objects: dict[str, Any] = {
        each["metadata"]["name"]: each
        for each in yaml.safe_load_all((folder / "kubernetes.yaml").read_text())
        if "data" in each
    }
    nodes = {"spazio-node-ip-10.eu", "spazio-node-my"}
    assert set(objects) == {"spazio-nats-accounts", *nodes} | {f"spazio-{each.name}-credentials" for each in role.ROLES}
    assert objects["spazio-nats-accounts"]["data"]["accounts.conf"] == (folder / "server.conf").read_text()
    for name in (*nodes, "spazio-cache-credentials"):
        assert set(objects[name]["data"]) == {"nats.creds"}
    spaces = {name: each["metadata"]["namespace"] for name, each in objects.items()}
    on_nodes = dict.fromkeys((*nodes, "spazio-govern-credentials"), "spazio-agents")
    assert spaces == dict.fromkeys(objects, "spazio") | on_nodes


def test_a_revoked_node_s_file_is_gone_also_if_the_name_has_colons(tmp_path: Path) -> None:
    with authority.opened(tmp_path, NAMES) as own:
        files = [own.node("a:b"), own.node("b")]
        assert own.revoke(["a:b"]) == 1
    assert [file.exists() for file in files] == [False, True]


def issued(folder: Path) -> dict[str, Any]:
    listed: dict[str, Any] = json.loads((folder / "issued.json").read_text())
    return listed


@pytest.mark.slow
def test_a_rotation_has_regions_and_the_local_user_too_and_names_whom_it_leaves_out(tmp_path: Path) -> None:
    command.issue(tmp_path, NAMES, command.Wanted(["n1", "n2"], region="ra"))
    command.issue(tmp_path, NAMES, command.Wanted(["n3"], region="rb"))
    with authority.opened(tmp_path, NAMES) as own:
        own.role(role.LOCAL_ROLE, tmp_path / authority.READER)
    before = issued(tmp_path)["users"]
    region = tmp_path / "regions" / "ra.creds"
    allowed = Credential(region).publish
    (tmp_path / "regions" / "rb.creds").unlink()
    lines = command.issue(tmp_path, NAMES, command.Wanted(rotate=True))
    assert [line for line in lines if "region rb has its old key" in line]
    assert [line for line in lines if "all others have a new key" in line]
    assert Credential(region).publish == allowed
    command.issue(tmp_path, NAMES, command.Wanted(retire=True))
    after = issued(tmp_path)
    assert {name for name, keys in before.items() if keys[0] not in after["revoked"]} == {"region:rb"}
    command.issue(tmp_path, NAMES, command.Wanted(["n3"], region="rb", rotate=True))
    command.issue(tmp_path, NAMES, command.Wanted(retire=True))
    assert before["region:rb"][0] in issued(tmp_path)["revoked"]


def test_a_name_that_was_never_issued_keeps_every_credential_from_being_revoked(tmp_path: Path) -> None:
    command.issue(tmp_path, NAMES, command.Wanted(["n1"]))
    (key,) = issued(tmp_path)["users"]["node:n1"]
    for wrong, message in ((command.Wanted(revoke=["n1", "typo"]), "typo"), (command.Wanted(["n" * 250]), "shorter")):
        with pytest.raises(ValueError, match=message):
            command.issue(tmp_path, NAMES, wrong)
        assert (tmp_path / "nodes" / "n1.creds").exists()
        assert issued(tmp_path)["users"]["node:n1"] == [key]
    command.issue(tmp_path, NAMES, command.Wanted(revoke=["n1", "n1"]))
    assert key in issued(tmp_path)["revoked"]


@pytest.mark.parametrize(
    "wanted", [command.Wanted(revoke=["n1"]), command.Wanted(rotate=True), command.Wanted(["n1"], retire=True)]
)
def test_a_folder_that_has_issued_nothing_gets_no_authority_where_something_is_to_end(
    tmp_path: Path, wanted: command.Wanted
) -> None:
    for folder in (tmp_path, tmp_path / "typo"):
        with pytest.raises(ValueError, match="has issued nothing: name the folder"):
            command.issue(folder, NAMES, wanted)
    assert not list(tmp_path.iterdir())


def test_what_an_earlier_version_revoked_until_then_is_revoked_for_ever(tmp_path: Path) -> None:
    command.issue(tmp_path, NAMES, command.Wanted(["n1"]))
    (key,) = issued(tmp_path)["users"]["node:n1"]
    command.issue(tmp_path, NAMES, command.Wanted(revoke=["n1"]))
    listed = issued(tmp_path)
    (tmp_path / "issued.json").write_text(json.dumps(listed | {"revoked": {key: 1_700_000_000}}))
    command.issue(tmp_path, NAMES, command.Wanted())
    assert issued(tmp_path)["revoked"] == listed["revoked"]
    assert listed["revoked"][key] > 1 << 39


def test_names_come_from_a_file_or_are_counted(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("a\n\n b \na\n")
    assert command.names(str(tmp_path / "nodes")) == ["a", "b"]
    assert command.names("11")[-1] == "sim-10"
    for wrong in ("0", "100001"):
        with pytest.raises(ValueError, match="1 to 100000"):
            command.names(wrong)
    (tmp_path / "bad").write_text("a b\n")
    with pytest.raises(ValueError, match="'a b' is no name of a node"):
        command.names(str(tmp_path / "bad"))


def test_a_name_too_long_for_a_credential_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nodes").write_text("n" * 241)
    assert command.run("spazio", tmp_path / "c", str(tmp_path / "nodes"), (), rotate=False, retire=False) == 2
    assert "choose a shorter one" in capsys.readouterr().err


def test_damaged_files_that_can_be_made_again_are_and_a_name_may_be_as_long_as_it_says(tmp_path: Path) -> None:
    longest = "n" * 230
    with authority.opened(tmp_path, NAMES) as own:
        file = own.node("n1")
        assert own.node(longest).exists()
    before = file.read_bytes()
    file.write_bytes(b"\xff\xfe" + before[:40])
    (tmp_path / "server.conf").write_bytes(b"\xff\xfe")
    command.issue(tmp_path, NAMES, command.Wanted(nodes=["n1"]))
    assert file.read_bytes().startswith(b"-----BEGIN NATS USER JWT-----")
    assert b"\xff" not in (tmp_path / "server.conf").read_bytes()


def test_a_damaged_list_of_what_is_revoked_is_never_replaced(tmp_path: Path) -> None:
    command.issue(tmp_path / "c", NAMES, command.Wanted())
    (tmp_path / "c" / "issued.json").write_text("{")
    with pytest.raises(authority.Unusable, match="put it back from a backup"):
        command.issue(tmp_path / "c", NAMES, command.Wanted())


def test_a_credential_is_signed_again_with_its_key_when_its_role_may_do_other_things(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "c"
    file = folder / "roles" / "metrics.creds"
    with monkeypatch.context() as before:
        less = [role.Role("metrics", "", lambda _: role.Grant(("old",), ("_INBOX_metrics.>",)))]
        before.setattr(role, "ROLES", tuple(less))
        command.issue(folder, NAMES, command.Wanted())
    old = file.read_text().splitlines()
    command.issue(folder, NAMES, command.Wanted())
    new = file.read_text().splitlines()
    assert old[1] != new[1]
    assert old[-2] == new[-2], "the key stays, so that what is revoked stays revoked"
    assert Credential(file).may_publish("$JS.API.STREAM.INFO.SPAZIO_ESTIMATES")
    assert not Credential(file).may_publish("old")


def test_a_credential_of_an_earlier_version_may_still_answer(tmp_path: Path) -> None:
    issuer, own = claims.new_key(claims.ACCOUNT), claims.new_key(claims.USER)
    body = {"type": "user", "pub": {"allow": ["a"]}, "resp": {"max": 1, "ttl": 10**10}}
    file = tmp_path / "process.creds"
    file.touch(0o600)
    file.write_text(claims.credential(claims.sign(issuer, own.public, "process", body, 0), own.seed))
    allowed = [Credential(file).may_publish(subject) for subject in ("a", "_INBOX_admin.1", "_R_.1", "b")]
    assert allowed == [True, True, True, False]
