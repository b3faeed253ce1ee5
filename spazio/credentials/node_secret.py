"""`python -m spazio.credentials.node_secret FOLDER`: takes what this node's Secret has into a folder.

That is its credential, and the authority by which it recognizes the server of the bus.

Agents run it as their init container. Each node has a Secret, and no pod may read that of another node. RBAC knows no
nodes, and admission, which knows the node of a pod's token, sees no reads. So each node has a ServiceAccount, too,
which may read its Secret, and the agents' account may read none: it may request a token of such an account, and
admission allows that for the node in its own token (`deploy/kubernetes/admission.yaml`, and ADR 55).
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
_TOKEN_SECONDS = 600  # the least that the API server gives, and the most that admission allows
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LONGEST = 3 << 20  # of an answer; a Secret has at most 1 MiB


class Unavailable(Exception):
    """There is no credential now; the message says why, and how to fix it."""


def secret_name(node: str) -> str:
    """Return the name of a node's Secret, and of the account that may read it."""
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
    name = secret_name(node)
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _TOKEN_SECONDS},
    }
    try:
        api = _Api(account, environ)
        own = (account / "token").read_text().strip()
        status, body = api.ask("POST", f"serviceaccounts/{name}/token", own, json.dumps(request))
        if status == http.HTTPStatus.CREATED:
            status, body = api.ask("GET", f"secrets/{name}", str(json.loads(body)["status"]["token"]))
    except (OSError, KeyError, TypeError, ValueError, http.client.HTTPException) as error:
        raise Unavailable(f"the API server does not answer: {error!r}") from error
    if status == http.HTTPStatus.NOT_FOUND:
        raise Unavailable(
            f"there is no Secret, or no ServiceAccount, {name}: name the node {node} to `spazio credentials --nodes`, "
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
            f"the Secret {name} lacks {CREDENTIAL} ({error!r}): apply kubernetes.yaml of `spazio credentials` again"
        ) from error


class _Api:
    """The namespace of the agents at the API server."""

    def __init__(self, account: Path, environ: Mapping[str, str]) -> None:
        self._context = ssl.create_default_context(cafile=str(account / "ca.crt"))
        self._address = environ["KUBERNETES_SERVICE_HOST"], int(environ["KUBERNETES_SERVICE_PORT"])
        self._path = f"/api/v1/namespaces/{(account / 'namespace').read_text().strip()}/"

    def ask(self, verb: str, path: str, token: str, body: str | None = None) -> tuple[int, bytes]:
        """Send a request; return status and body of the answer."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        link = http.client.HTTPSConnection(*self._address, timeout=_SECONDS, context=self._context)
        try:
            link.request(verb, self._path + path, body, headers)
            answer = link.getresponse()
            return answer.status, answer.read(_LONGEST)
        finally:
            link.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
