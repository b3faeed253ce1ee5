"""`python -m spazio.credentials.node_secret FOLDER`: takes what this node's Secret has into a folder.

That is its credential, and the authority by which it recognizes the server of the bus.

Agents run it as their init container. Each node has a Secret, and no pod may read that of another node. RBAC knows no
nodes, and admission, which knows the node of a pod's token, sees no reads. So the agents' account may not read
Secrets: it may patch them, as a dry run, which changes nothing and answers with the whole object. Admission allows
that for the Secret of the node in the token (`deploy/kubernetes/admission.yaml`; docs/adr/0045-node-secrets.md).
"""

import base64
import http.client
import json
import os
import ssl
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bus.access import private_file

CREDENTIAL = "nats.creds"
AUTHORITY = "ca.crt"  # not there if the server has no TLS, or one of the authorities of the operating system
_SECONDS = 10.0
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LONGEST = 3 << 20  # of an answer; a Secret has at most 1 MiB


class Unavailable(Exception):
    """There is no credential now; the message says why, and how to fix it."""


def secret_name(node: str) -> str:
    """Return the name of a node's Secret."""
    return f"spazio-node-{node}"


def main(arguments: Sequence[str], account: Path = ACCOUNT, environ: Mapping[str, str] = os.environ) -> int:
    """Write what this node's Secret has into a folder, and return the exit status.

    Args:
        arguments: The folder.
        account: Folder with `token`, `namespace` and `ca.crt` of the pod's ServiceAccount.
        environ: Has the node's name and the API server's address.
    """
    (folder,) = map(Path, arguments)
    try:
        for name, content in fetch(account, environ).items():
            private_file.replace(folder / name, content)
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def fetch(account: Path, environ: Mapping[str, str]) -> dict[str, bytes]:
    """Return what this node's Secret has, by the names of files; arguments as those of `main`.

    Raises:
        Unavailable: The API server does not give it.
    """
    node = environ.get("SPAZIO_SAMPLE_NODE", "")
    try:
        status, body = _patched(account, environ, secret_name(node))
    except (OSError, KeyError, ValueError, http.client.HTTPException) as error:
        raise Unavailable(f"the API server does not answer: {error!r}") from error
    if status == http.HTTPStatus.NOT_FOUND:
        raise Unavailable(
            f"there is no Secret {secret_name(node)}: name the node {node} to `spazio credentials --nodes`, "
            "and apply kubernetes.yaml"
        )
    try:
        content = json.loads(body)
        if status != http.HTTPStatus.OK:
            raise Unavailable(f"the API server refuses the Secret of {node}: {content['message']}")
        data = content["data"]
        names = [CREDENTIAL, *([AUTHORITY] if AUTHORITY in data else [])]
        return {name: base64.b64decode(data[name]) for name in names}
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable(
            f"the Secret {secret_name(node)} lacks {CREDENTIAL} ({error!r}): apply kubernetes.yaml of "
            "`spazio credentials` again"
        ) from error


def _patched(account: Path, environ: Mapping[str, str], name: str) -> tuple[int, bytes]:
    """Send an empty patch of a Secret as a dry run; return status and body of the answer."""
    context = ssl.create_default_context(cafile=str(account / "ca.crt"))
    host, port = environ["KUBERNETES_SERVICE_HOST"], int(environ["KUBERNETES_SERVICE_PORT"])
    path = f"/api/v1/namespaces/{(account / 'namespace').read_text().strip()}/secrets/{name}?dryRun=All"
    headers = {
        "Authorization": f"Bearer {(account / 'token').read_text().strip()}",
        "Content-Type": "application/merge-patch+json",
    }
    link = http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=context)
    try:
        link.request("PATCH", path, b"{}", headers)
        answer = link.getresponse()
        return answer.status, answer.read(_LONGEST)
    finally:
        link.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
