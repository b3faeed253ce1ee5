"""The credentials of a folder as Kubernetes objects: a Secret for each role, one for all nodes, and the accounts."""

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path

ACCOUNTS = "spazio-nats-accounts"
NODES = "spazio-node-credentials"
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


def manifest(accounts: Path, roles: Mapping[str, Path], nodes: Mapping[str, Path]) -> tuple[str, list[str]]:
    """Return the objects as YAML, and the nodes that are left out since no key of a Secret can have their name.

    Args:
        accounts: The server's part.
        roles: The credential of each role, by name.
        nodes: The credential of each node, by name.
    """
    left_out = [name for name in nodes if not _KEY.fullmatch(f"{name}.creds")]
    secrets = [_secret(f"spazio-{name}-credentials", {"nats.creds": file}) for name, file in roles.items()]
    files = {f"{name}.creds": file for name, file in nodes.items() if name not in left_out}
    config = _document("ConfigMap", ACCOUNTS, "data", {"accounts.conf": accounts.read_text()})
    return "---\n".join([config, *secrets, _secret(NODES, files)]), left_out


def _secret(name: str, files: Mapping[str, Path]) -> str:
    data = {key: base64.b64encode(file.read_bytes()).decode() for key, file in files.items()}
    return _document("Secret", name, "data", data, kind="Opaque")


def _document(what: str, name: str, field: str, values: Mapping[str, str], kind: str = "") -> str:
    # A JSON string is a YAML string too.
    lines = ["apiVersion: v1", f"kind: {what}", *([f"type: {kind}"] if kind else []), "metadata:", f"  name: {name}"]
    lines += [f"{field}:" if values else f"{field}: {{}}"]
    lines += [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"
