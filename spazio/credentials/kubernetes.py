"""The credentials of a folder as Kubernetes objects: a Secret for each role, one for all nodes, and the accounts.

Agents are in a namespace of their own (`deploy/kubernetes/namespace.yaml`), with the Secret of the nodes and that
of the governor.
"""

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path

ACCOUNTS = "spazio-nats-accounts"
NODES = "spazio-node-credentials"
SPACE, AGENTS = "spazio", "spazio-agents"
SECRET_BYTES = 1 << 20  # the API server refuses a larger one
_BESIDE_AGENTS = ("govern",)  # roles of what runs on nodes, in the namespace that may mount folders of the host
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


def manifest(accounts: Path, roles: Mapping[str, Path], nodes: Mapping[str, Path]) -> tuple[str, list[str]]:
    """Return the objects as YAML, and the nodes that are left out since no key of a Secret can have their name.

    Args:
        accounts: The server's part.
        roles: The credential of each role, by name.
        nodes: The credential of each node, by name.
    """
    left_out = [name for name in nodes if not _KEY.fullmatch(f"{name}.creds")]
    secrets = [
        _secret(f"spazio-{name}-credentials", AGENTS if name in _BESIDE_AGENTS else SPACE, {"nats.creds": file})
        for name, file in roles.items()
    ]
    files = {f"{name}.creds": file for name, file in nodes.items() if name not in left_out}
    config = _document("ConfigMap", ACCOUNTS, SPACE, {"accounts.conf": accounts.read_text()})
    return "---\n".join([config, *secrets, _secret(NODES, AGENTS, files)]), left_out


def _secret(name: str, space: str, files: Mapping[str, Path]) -> str:
    data = {key: base64.b64encode(file.read_bytes()).decode() for key, file in files.items()}
    return _document("Secret", name, space, data, kind="Opaque")


def _document(what: str, name: str, space: str, values: Mapping[str, str], kind: str = "") -> str:
    # A JSON string is a YAML string too.
    lines = ["apiVersion: v1", f"kind: {what}", *([f"type: {kind}"] if kind else [])]
    lines += ["metadata:", f"  name: {name}", f"  namespace: {space}", "data:" if values else "data: {}"]
    lines += [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"
