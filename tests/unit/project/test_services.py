"""A service that runs on one machine is in every file that deploys it; what lacks one is named."""

import json
import re
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from schemas import role
from schemas.settings import Settings
from spazio.service.composition import machine

ROOT = Path(__file__).parents[3]


def text(name: str) -> str:
    return (ROOT / name).read_text()


def looped(name: str) -> set[str]:
    """Return the roles of a loop in a shell script."""
    match = re.search(r"for role in ([a-z ]+);", text(name))
    assert match is not None
    return {*match[1].split()}


def places() -> dict[str, set[str]]:
    """Return the services in each file that has to have all of them."""
    stack = yaml.safe_load(text("docker-compose.yml"))
    policies = [each for each in yaml.safe_load_all(text("deploy/kubernetes/network.yaml")) if each]
    chosen = [each["spec"].get("podSelector", {}).get("matchLabels", {}) for each in policies]
    schema = json.loads(text("deploy/helm/spazio/values.schema.json"))
    sinks = re.findall(r"\bPORT_(\w+)=", text("deploy/systemd/spazio-sink@.service"))
    return {
        "schemas/role.py": {"agent", *(each.name for each in role.ROLES)},
        "docker-compose.yml (services)": {*stack["services"]},
        "docker-compose.yml (volumes)": {name.removesuffix("-credentials") for name in stack["volumes"]},
        "deploy/Dockerfile": looped("deploy/Dockerfile"),
        "deploy/credentials.sh": {"agent", *looped("deploy/credentials.sh")},
        "deploy/prometheus/compose.yml": {*re.findall(r"(\w+):9470", text("deploy/prometheus/compose.yml"))},
        "deploy/systemd": {
            *sinks,
            *(path.stem.removeprefix("spazio-") for path in (ROOT / "deploy/systemd").iterdir()),
        },
        "deploy/kubernetes": {path.stem for path in (ROOT / "deploy/kubernetes").glob("*.yaml")},
        "deploy/kubernetes/Kustomization": {*re.findall(r"- (\w+)\.yaml", text("deploy/kubernetes/Kustomization"))},
        "deploy/kubernetes/network.yaml": {
            labels.get("app.kubernetes.io/name", "").removeprefix("spazio-") for labels in chosen
        },
        "deploy/kubernetes/README.md": {*re.findall(r"`(\w+)\.yaml`", text("deploy/kubernetes/README.md"))},
        "deploy/helm/spazio/values.yaml": {*yaml.safe_load(text("deploy/helm/spazio/values.yaml"))["components"]},
        "deploy/helm/spazio/values.schema.json": {*schema["properties"]["components"]["properties"]},
        "docs/operations.md": documented().keys() & set(machine.NAMES),
    }


def documented() -> dict[str, int]:
    """Return the port of each service in the table of the documentation."""
    page = text("docs/operations.md")
    table = page[page.index("| service of `spazio up` |") :].split("\n\n")[0]
    result: dict[str, int] = {}
    for row in table.splitlines()[2:]:
        names, ports = row.split("|")[1:3]
        result |= zip(names.strip().split(", "), map(int, re.findall(r"\d{4}", ports)), strict=True)
    return result


@pytest.mark.parametrize("service", machine.NAMES)
def test_a_service_is_in_every_file_that_deploys_it(service: str) -> None:
    assert [file for file, services in places().items() if service not in services] == []


def test_the_documentation_has_the_ports() -> None:
    first, further = Settings().http.port, "further processors (`--processors`)"
    expected = {service.name: first + machine.port_offset(service.name) for service in machine.SERVICES}
    assert documented() == expected | {further: first + machine.port_offset("process", replica=2)}


def test_every_service_ends_once() -> None:
    assert sorted((*machine.PRODUCERS, "process", *machine.SINKS)) == sorted(each.name for each in machine.SERVICES)
