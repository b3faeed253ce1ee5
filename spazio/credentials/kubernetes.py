"""The credentials of a folder as Kubernetes objects: a Secret for each role and each node, and the accounts of NATS.

Agents are in a namespace of their own (`deploy/kubernetes/namespace.yaml`), with the Secrets of the nodes and that
of the governor. A node also has an account that may read its Secret, of which its agent requests a token. Each Secret
also has the authority by which its owner recognizes the server, whose certificate is a Secret of its own.
"""

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from spazio.credentials.node_secret import AUTHORITY, CREDENTIAL, secret_name

ACCOUNTS = "spazio-nats-accounts"
TLS = "spazio-nats-tls"
CERTIFICATE = ("server.crt", "server.key")
SPACE, AGENTS = "spazio", "spazio-agents"
_BESIDE_AGENTS = ("govern",)  # roles of what runs on nodes, in the namespace that may mount folders of the host
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")


class Manifest(NamedTuple):
    """The objects as YAML, and the nodes that are left out, since no Secret can have their name."""

    text: str
    left_out: list[str]


def manifest(accounts: Path, tls: Path, roles: Mapping[str, Path], nodes: Mapping[str, Path]) -> Manifest:
    """Return the objects.

    Args:
        accounts: The server's part.
        tls: Folder with the certificate of the server and of its authority, as far as they are there. A server of
            others has only an authority here, or none.
        roles: The credential of each role, by name.
        nodes: The credential of each node, by name.

    Raises:
        OSError: A file cannot be read.
    """
    left_out = [name for name in nodes if not _NAME.fullmatch(secret_name(name))]
    objects = [_document("ConfigMap", ACCOUNTS, SPACE, {"accounts.conf": accounts.read_text()})]
    certificate = {name: tls / name for name in CERTIFICATE}
    authority = {AUTHORITY: tls / AUTHORITY} if (tls / AUTHORITY).exists() else {}
    if certified(tls):
        objects.append(_secret(TLS, SPACE, certificate | authority))
    for name, file in roles.items():
        space = AGENTS if name in _BESIDE_AGENTS else SPACE
        objects.append(_secret(f"spazio-{name}-credentials", space, {CREDENTIAL: file} | authority))
    for name, file in nodes.items():
        if name not in left_out:
            objects.append(_secret(secret_name(name), AGENTS, {CREDENTIAL: file} | authority))
            objects += _reader(secret_name(name))
    return Manifest("---\n".join(objects), left_out)


def certified(tls: Path) -> bool:
    """Tell whether a folder has a certificate for the server."""
    return all((tls / name).exists() for name in (*CERTIFICATE, AUTHORITY))


def _secret(name: str, space: str, files: Mapping[str, Path]) -> str:
    data = {key: base64.b64encode(file.read_bytes()).decode() for key, file in files.items()}
    return _document("Secret", name, space, data, kind="Opaque")


def _reader(name: str) -> list[str]:
    """Return the account that may read the Secret of this name, and its right."""
    group = "rbac.authorization.k8s.io"
    metadata = {"name": name, "namespace": AGENTS}
    things: list[dict[str, object]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, "automountServiceAccountToken": False},
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": ["get"]}],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": AGENTS}],
        },
    ]
    return [json.dumps(thing) + "\n" for thing in things]  # JSON is YAML, too


def _document(what: str, name: str, space: str, values: Mapping[str, str], kind: str = "") -> str:
    # A JSON string is a YAML string too.
    lines = ["apiVersion: v1", f"kind: {what}", *([f"type: {kind}"] if kind else [])]
    lines += ["metadata:", f"  name: {json.dumps(name)}", f"  namespace: {space}", "data:" if values else "data: {}"]
    lines += [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"
