"""The credentials of a folder as Kubernetes objects: a Secret for each role and for each node, and the accounts.

Agents are in a namespace of their own (`deploy/kubernetes/namespace.yaml`), with the Secrets of the nodes and that
of the governor. Where the folder has the certificates of the server, each Secret also has the authority's, by which
a service recognizes the server.
"""

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from spazio.credentials.node_secret import AUTHORITY, CREDENTIAL, secret_name

ACCOUNTS = "spazio-nats-accounts"
SERVER = "spazio-nats-tls"
SPACE, AGENTS = "spazio", "spazio-agents"
_CERTIFICATE = ("server.crt", "server.key", AUTHORITY)
_BESIDE_AGENTS = ("govern",)  # roles of what runs on nodes, in the namespace that may mount folders of the host
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")


class Manifest(NamedTuple):
    """The objects as YAML, and the nodes that are left out, since no Secret can have their name."""

    text: str
    left_out: list[str]


def manifest(
    accounts: Path, roles: Mapping[str, Path], nodes: Mapping[str, Path], certificates: Path | None = None
) -> Manifest:
    """Return the objects.

    Args:
        accounts: The server's part.
        roles: The credential of each role, by name.
        nodes: The credential of each node, by name.
        certificates: Folder of `deploy/certificates.sh` for the server, or one that has its authority only; None: there
            is none.

    Raises:
        OSError: A file cannot be read.
    """
    left_out = [name for name in nodes if not _NAME.fullmatch(secret_name(name))]
    shared = {} if certificates is None else {AUTHORITY: certificates / AUTHORITY}
    objects = [_document("ConfigMap", ACCOUNTS, SPACE, {"accounts.conf": accounts.read_text()})]
    if certificates is not None and (certificates / _CERTIFICATE[0]).exists():
        objects.append(_secret(SERVER, SPACE, {name: certificates / name for name in _CERTIFICATE}))
    for name, file in roles.items():
        space = AGENTS if name in _BESIDE_AGENTS else SPACE
        objects.append(_secret(f"spazio-{name}-credentials", space, {CREDENTIAL: file} | shared))
    for name, file in nodes.items():
        if name not in left_out:
            objects.append(_secret(secret_name(name), AGENTS, {CREDENTIAL: file} | shared))
    return Manifest("---\n".join(objects), left_out)


def _secret(name: str, space: str, files: Mapping[str, Path]) -> str:
    data = {key: base64.b64encode(file.read_bytes()).decode() for key, file in files.items()}
    return _document("Secret", name, space, data, kind="Opaque")


def _document(what: str, name: str, space: str, values: Mapping[str, str], kind: str = "") -> str:
    # A JSON string is a YAML string too.
    lines = ["apiVersion: v1", f"kind: {what}", *([f"type: {kind}"] if kind else [])]
    lines += ["metadata:", f"  name: {json.dumps(name)}", f"  namespace: {space}", "data:" if values else "data: {}"]
    lines += [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"
