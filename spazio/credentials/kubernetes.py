"""The credentials of a folder as Kubernetes objects: a Secret for each role and for each node, and the accounts.

Agents are in a namespace of their own (`deploy/kubernetes/namespace.yaml`), with the Secrets of the nodes and that
of the governor.
"""

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from spazio.credentials.node_secret import CREDENTIAL, secret_name

ACCOUNTS = "spazio-nats-accounts"
SPACE, AGENTS = "spazio", "spazio-agents"
_BESIDE_AGENTS = ("govern",)  # roles of what runs on nodes, in the namespace that may mount folders of the host
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")


class Manifest(NamedTuple):
    """The objects as YAML, and the nodes that are left out, since no Secret can have their name."""

    text: str
    left_out: list[str]


def manifest(accounts: Path, roles: Mapping[str, Path], nodes: Mapping[str, Path]) -> Manifest:
    """Return the objects.

    Args:
        accounts: The server's part.
        roles: The credential of each role, by name.
        nodes: The credential of each node, by name.

    Raises:
        OSError: A file cannot be read.
    """
    left_out = [name for name in nodes if not _NAME.fullmatch(secret_name(name))]
    objects = [_document("ConfigMap", ACCOUNTS, SPACE, {"accounts.conf": accounts.read_text()})]
    for name, file in roles.items():
        space = AGENTS if name in _BESIDE_AGENTS else SPACE
        objects.append(_secret(f"spazio-{name}-credentials", space, file))
    for name, file in nodes.items():
        if name not in left_out:
            objects.append(_secret(secret_name(name), AGENTS, file))
    return Manifest("---\n".join(objects), left_out)


def _secret(name: str, space: str, file: Path) -> str:
    data = {CREDENTIAL: base64.b64encode(file.read_bytes()).decode()}
    return _document("Secret", name, space, data, kind="Opaque")


def _document(what: str, name: str, space: str, values: Mapping[str, str], kind: str = "") -> str:
    # A JSON string is a YAML string too.
    lines = ["apiVersion: v1", f"kind: {what}", *([f"type: {kind}"] if kind else [])]
    lines += ["metadata:", f"  name: {json.dumps(name)}", f"  namespace: {space}", "data:" if values else "data: {}"]
    lines += [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"
