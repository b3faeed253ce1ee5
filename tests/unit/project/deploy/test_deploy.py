"""What the images and the compose stack are made of agrees with what it is taken from."""

import re
import subprocess
import tomllib
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from bus import layout, server
from schemas import settings as all_settings
from schemas.settings import Settings
from tests.support.project.documents import CURRENT

ROOT = Path(__file__).parents[4]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TLS = "tls { cert_file"  # begins the line of the certificate, which is another one for each server


def pins(name: str) -> dict[str, str]:
    """Return each pinned package of a requirements file with its version, marker and hashes."""
    blocks = re.split(r"^(?=\S)", (ROOT / name).read_text(), flags=re.MULTILINE)
    return {block.partition("==")[0]: block.strip() for block in blocks if block}


def lines(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")}


def test_the_agents_pins_are_those_of_all_packages_and_hold_what_the_agent_needs() -> None:
    agent, everything = pins("requirements-agent.txt"), pins("requirements.txt")
    assert agent.items() <= everything.items()
    needed = {re.split(r"[<>=\[; ]", requirement)[0] for requirement in PROJECT["project"]["dependencies"]}
    assert needed <= agent.keys()


def test_images_are_built_from_every_package_of_the_project_and_nothing_else() -> None:
    packages = set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    shown = {line.strip("!/") for line in lines((ROOT / ".dockerignore").read_text()) if line.startswith("!")}
    assert {path for path in shown if (ROOT / path / "__init__.py").exists()} == packages
    assert "*" in lines((ROOT / ".dockerignore").read_text())


def test_images_have_code_that_their_users_can_read_also_of_a_checkout_with_a_strict_umask(tmp_path: Path) -> None:
    stage = (ROOT / "deploy/Dockerfile").read_text().partition(" AS code\n")[2].partition("\nFROM ")[0]
    command = stage.partition("\nRUN ")[2].replace("\\\n", "")
    folder = tmp_path / "schemas"
    folder.mkdir(mode=0o700)
    (folder / "a.py").touch(0o600)
    tmp_path.chmod(0o700)
    subprocess.run(["sh", "-c", f"umask 022\n{command}"], cwd=tmp_path, check=True)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path, *tmp_path.rglob("*"))}
    assert {mode for name, mode in modes.items() if "." not in name} == {0o755}
    assert {mode for name, mode in modes.items() if "." in name} == {0o644}
    assert len(modes) == 5


def test_the_server_of_the_stack_is_configured_as_the_embedded_one(tmp_path: Path) -> None:
    own = {"server_name", "listen", "http", "store_dir", "max_file_store", "include accounts/accounts.conf", TLS}
    own |= {"log_file", "logfile_size_limit", "logfile_max_num"}  # of a container, who runs it keeps the log
    embedded = server.write_config(Settings.model_validate({"data": {"dir": tmp_path}}), 4222).read_text()
    deployed = (ROOT / "deploy/nats.conf").read_text()
    shared = [{line for line in lines(text) if line.partition(":")[0] not in own} for text in (embedded, deployed)]
    assert shared[0] == shared[1]


def test_the_hub_is_configured_as_the_server_of_the_stack_and_hub_and_leaf_are_closed_until_opened() -> None:
    stack, hub, leaf = (
        (ROOT / "deploy" / name).read_text() for name in ("nats.conf", "nats-hub.conf", "nats-leaf.conf")
    )
    own = {"server_name", "listen", "http", TLS}
    common = {line for line in lines(stack) if line.partition(":")[0] not in own and not line.startswith("include")}
    assert common <= lines(hub)
    assert "include credentials/server.conf" in lines(hub)
    assert "include credentials/leaf.conf" in lines(leaf)
    for text in (hub, leaf):
        assert all("127.0.0.1" in line for line in lines(text) if line.startswith(("listen:", "http:")))
        assert not re.search(r"^\s*(authorization|password|users|no_auth_user)\b", text, re.MULTILINE)
        # Clients, and leaf servers on both sides.
        assert len(re.findall(r"^\s*tls \{", text, re.MULTILINE)) == 2


def test_the_server_of_the_stack_has_room_for_all_streams() -> None:
    sizes = sum(config.max_bytes or 0 for config in layout.configs(Settings()))
    room = re.search(r"max_file_store: (\d+)GB", (ROOT / "deploy/nats.conf").read_text())
    assert room is not None
    assert int(room[1]) << 30 >= sizes


def test_the_compose_file_is_one_that_old_and_new_versions_read() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    top = set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))
    assert {name for name in top if not name.startswith("x-")} == {"services", "volumes", "networks"}
    for newer in ("develop:", "include:", "!reset", "!override", "start_interval", "required:"):
        assert newer not in text


def test_every_command_for_the_stack_reads_the_same_variables_and_files() -> None:
    texts = [path.read_text() for path in (*CURRENT, ROOT / "docker-compose.yml", *(ROOT / "deploy").glob("*.*"))]
    assert [match for text in texts for match in re.findall(r"\w+=\S+[ \\\n#]+docker[ -]compose\b.*", text)] == []
    assert [match for text in texts for match in re.findall(r"docker[ -]compose -f.*", text)] == []
    assert "/.env" in lines((ROOT / ".gitignore").read_text())


def test_the_agent_of_the_stack_reaches_the_server_and_no_other_service() -> None:
    stack = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    services = {name: {*service.get("networks", ())} for name, service in stack["services"].items()}
    assert {name for name, networks in services.items() if networks & services["agent"]} == {"agent", "nats"}
    assert all(stack["networks"][network]["internal"] for network in services["agent"])
    monitoring = yaml.safe_load((ROOT / "deploy/monitoring.yml").read_text())["services"]
    scraped = re.findall(r"(\w+):9470", (ROOT / "deploy/prometheus/compose.yml").read_text().split("relabel")[0])
    assert scraped
    for name in scraped:
        assert services[name] & {*monitoring["prometheus"]["networks"]}, name


def test_each_service_of_the_stack_has_its_own_credential_and_only_one_sees_the_keys() -> None:
    stack = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    services = stack["services"]
    mounted = {
        name: {
            volume.split(":")[0]: volume.split(":")[1:]
            for volume in service.get("volumes", ())
            if volume[0] not in "./$"
        }
        for name, service in services.items()
    }
    assert [name for name, volumes in mounted.items() if "keys" in volumes] == ["credentials"]
    assert mounted["nats"] == {
        "nats-accounts": ["/etc/nats/accounts", "ro"],
        "nats-tls": ["/etc/nats/tls", "ro"],
        "nats": ["/data"],
    }
    assert services["nats"]["group_add"] == ["10002"]
    clients = services.keys() - {"credentials", "nats"}
    for name in clients:
        assert mounted[name] == {f"{name}-credentials": ["/etc/spazio", "ro"]}
        assert "10002" in services[name]["group_add"]
    handed = {volume.removesuffix("-credentials") for volume in mounted["credentials"]} - {
        "keys",
        "nats-accounts",
        "nats-tls",
    }
    assert handed == clients
    for volume, (folder, *_) in mounted["credentials"].items():
        role = {"keys": "keys", "nats-accounts": "server", "nats-tls": "tls"}.get(
            volume, volume.removesuffix("-credentials")
        )
        assert folder == f"/credentials/{role}"
    for name in services.keys() - {"credentials"}:
        assert services[name]["depends_on"]["credentials"] == {"condition": "service_completed_successfully"}
    assert services["credentials"]["network_mode"] == "none"
    # A volume takes its owner from the image's folder of that name.
    folders = re.search(r"for role in ([a-z ]+);", (ROOT / "deploy/Dockerfile").read_text())
    script = re.search(r"for role in ([a-z ]+);", (ROOT / "deploy/credentials.sh").read_text())
    assert folders is not None
    assert script is not None
    assert set(folders[1].split()) == clients == set(script[1].split()) | {"agent"}


def test_what_leaves_this_host_speaks_tls_and_asks_who_it_is() -> None:
    services = yaml.safe_load((ROOT / "deploy/published.yml").read_text())["services"]
    del services["credentials"]  # it only allows the others to start
    published = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    anonymous = {name for name, each in published.items() if "ALLOW_ANONYMOUS" in str(each.get("environment"))}
    assert services.keys() == anonymous
    script = (ROOT / "deploy/credentials.sh").read_text()
    for name, service in services.items():
        given = published[name]["environment"] | service["environment"]
        assert given[f"SPAZIO_{name.upper()}_ALLOW_ANONYMOUS"] == "false"
        settings = all_settings.load({}, environ={key: value for key, value in given.items() if "$" not in value})
        own = getattr(settings, name)
        files = [path for path in own.model_dump().values() if isinstance(path, Path)]
        assert len(files) == 3
        for path in files:
            assert path.parent == Path("/etc/spazio")
            assert re.search(rf'^ *hand \S+ "?(\$role|{name})"? {path.name} ', script, re.MULTILINE), path
