"""Each agent takes the credential of its own node from a real API server, as its init container does, and no other."""

import asyncio
import itertools
import json
import subprocess
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
import yaml  # type: ignore[import-untyped]

from spazio.credentials import command, node_secret
from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.output.writing import install, put, until
from tests.e2e.kubernetes.rights.test_admission import pods
from tests.support.server.secured import NAMES

pytestmark = pytest.mark.slow

SECRETS = "/api/v1/namespaces/spazio-agents/secrets"
ACCOUNTS = "/api/v1/namespaces/spazio-agents/serviceaccounts"
MESSAGE = "an agent may have a token of the account of its own node, for ten minutes"
NODES = ("n1", "n2.example")
CERTIFICATES = Path(__file__).parents[4] / "deploy" / "certificates.sh"
_number = itertools.count()


class Agent:
    """The init container of an agent's pod on a node."""

    def __init__(self, plane: ControlPlane, folder: Path, node: str) -> None:
        self._plane, self._node, self.account, self.taken = plane, node, folder / "account", folder / "taken"
        for each in (self.account, self.taken):
            each.mkdir(parents=True)
        (self.account / "namespace").write_text("spazio-agents")
        (self.account / "ca.crt").write_bytes((plane.folder / "certificates" / "apiserver.crt").read_bytes())

    @property
    def environ(self) -> dict[str, str]:
        host, _, port = self._plane.url.removeprefix("https://").partition(":")
        address = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        return address | {"SPAZIO_SAMPLE_NODE": self._node}

    async def started(self, kubectl: Kubectl) -> None:
        """Have the pod run on its node, and put its token where the kubelet puts it."""
        pod = pods()["spazio-agent"]
        pod["metadata"]["name"] += f"-{next(_number)}"
        pod["spec"]["nodeName"] = self._node
        made = await kubectl.call("POST", "/api/v1/namespaces/spazio-agents/pods", pod)
        bound = {"kind": "Pod", "apiVersion": "v1", "name": made["metadata"]["name"], "uid": made["metadata"]["uid"]}
        (self.account / "token").write_text(await token(kubectl, {"boundObjectRef": bound}))

    @property
    def token(self) -> str:
        return (self.account / "token").read_text()

    async def run(self, *, node: str = "") -> int:
        """Run the init container, as one that names another node if given; return its exit status."""
        environ = self.environ | ({"SPAZIO_SAMPLE_NODE": node} if node else {})
        return await asyncio.to_thread(node_secret.main, [str(self.taken)], self.account, environ)


async def token(kubectl: Kubectl, spec: dict[str, object]) -> str:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return str((await kubectl.call("POST", f"{ACCOUNTS}/spazio-agent/token", request))["status"]["token"])


class Attempt(NamedTuple):
    """A request that an agent of the node n1 sends with its token, and the status of the refusal."""

    verb: str
    path: str
    change: object
    status: int


def account(node: str) -> str:
    """Return the path at which tokens of a node's account are requested."""
    return f"{ACCOUNTS}/spazio-node-{node}/token"


OTHERS = f"{SECRETS}/spazio-node-n2.example"
OWN = f"{SECRETS}/spazio-node-n1"
# What would have the API server quote a credential in its refusal of a label.
COPY = [
    {"op": "add", "path": "/metadata/labels", "value": {}},
    {"op": "copy", "from": "/data/nats.creds", "path": "/metadata/labels/x"},
]
SHORT, LONG = ({"spec": {"expirationSeconds": seconds}} for seconds in (600, 3600))
REFUSED = (
    Attempt("POST", account("n2.example"), SHORT, 422),
    Attempt("POST", account("n1"), LONG, 422),
    Attempt("POST", account("n1"), {"spec": {}}, 422),
    Attempt("POST", f"{ACCOUNTS}/spazio-agent/token", SHORT, 422),
    Attempt("POST", "/api/v1/namespaces/spazio/serviceaccounts/default/token", SHORT, 403),
    Attempt("PATCH", f"{OTHERS}?dryRun=All", COPY, 403),
    Attempt("PATCH", f"{SECRETS}/spazio-govern-credentials?dryRun=All", COPY, 403),
    Attempt("PATCH", f"{OWN}?dryRun=All", [], 403),
    Attempt("GET", OWN, None, 403),
    Attempt("GET", OTHERS, None, 403),
    Attempt("GET", SECRETS, None, 403),
    Attempt("GET", f"{SECRETS}?watch=true", None, 403),
    Attempt("DELETE", OWN, None, 403),
    Attempt("POST", SECRETS, {"metadata": {"name": "made"}}, 403),
    Attempt("PUT", f"{OTHERS}?dryRun=All", {"metadata": {"name": "spazio-node-n2.example"}}, 403),
)


async def send(plane: ControlPlane, token: str, attempt: Attempt) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"}
    kind = "application/json-patch+json" if attempt.verb == "PATCH" else "application/json"
    async with (
        aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(ssl=False)) as session,
        session.request(
            attempt.verb, plane.url + attempt.path, json=attempt.change, headers={"Content-Type": kind}
        ) as answer,
    ):
        return answer.status, await answer.text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Credentials of two nodes, and the certificate of the server."""
    made = tmp_path / "credentials"
    tls = made / "tls" / "nats"
    subprocess.run([CERTIFICATES, tls, "spazio-nats.spazio.svc"], check=True, capture_output=True)
    command.issue(made, NAMES, command.Wanted(NODES))
    return made


@pytest.fixture
def plane(shared: ControlPlane) -> ControlPlane:
    return shared


@pytest.fixture
async def agent(plane: ControlPlane, kubectl: Kubectl, folder: Path, tmp_path: Path) -> Agent:
    """An agent on the node n1, in a cluster where the policy is in force."""
    await install(kubectl, "namespace.yaml", "admission.yaml", "rbac.yaml")
    for thing in yaml.safe_load_all((folder / "kubernetes.yaml").read_text()):
        await put(kubectl, thing)
    for node in NODES:
        await kubectl.node(node)
    running = Agent(plane, tmp_path / "agent", NODES[0])
    await running.started(kubectl)

    async def in_force() -> bool:
        return (await send(plane, running.token, REFUSED[0]))[0] == REFUSED[0].status

    await until(in_force, 60)
    return running


async def test_an_agent_has_the_credential_of_its_node_and_another_that_of_its_own(
    plane: ControlPlane, kubectl: Kubectl, agent: Agent, folder: Path, tmp_path: Path
) -> None:
    other = Agent(plane, tmp_path / "other", NODES[1])
    await other.started(kubectl)
    for each, name in ((agent, "n1"), (other, "n2_example")):
        assert await each.run() == 0
        files = {file.name: file for file in each.taken.iterdir()}
        assert files.keys() == {"nats.creds", "ca.crt"}
        assert files["ca.crt"].read_text() == (folder / "tls" / "nats" / "ca.crt").read_text()
        assert files["nats.creds"].read_text() == (folder / "nodes" / f"{name}.creds").read_text()
        assert all(file.stat().st_mode & 0o077 == 0 for file in files.values())


async def test_an_agent_gets_no_other_credential_and_changes_nothing(
    plane: ControlPlane, kubectl: Kubectl, agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {each["metadata"]["name"]: each for each in (await kubectl.call("GET", SECRETS))["items"]}
    for attempt in REFUSED:
        status, text = await send(plane, agent.token, attempt)
        assert status == attempt.status, (attempt, text)
        assert "nats.creds" not in text.replace("/data/nats.creds", ""), attempt
        assert (MESSAGE in text) == (status == 422), (attempt, text)
    assert await agent.run(node=NODES[1]) == 1
    assert MESSAGE in capsys.readouterr().err
    assert list(agent.taken.iterdir()) == []
    assert {each["metadata"]["name"]: each for each in (await kubectl.call("GET", SECRETS))["items"]} == before


async def test_a_token_of_the_account_that_belongs_to_no_pod_gets_no_other(
    plane: ControlPlane, kubectl: Kubectl, agent: Agent
) -> None:
    unbound = await token(kubectl, {})
    for node in NODES:
        status, text = await send(plane, unbound, Attempt("POST", account(node), SHORT, 0))
        assert status == 422
        assert MESSAGE in text


async def test_the_account_of_a_node_reads_its_secret_and_can_do_nothing_else(
    plane: ControlPlane, agent: Agent
) -> None:
    status, text = await send(plane, agent.token, Attempt("POST", account("n1"), SHORT, 201))
    assert status == 201
    own = json.loads(text)["status"]["token"]
    status, text = await send(plane, own, Attempt("GET", OWN, None, 200))
    assert status == 200
    assert "nats.creds" in text
    for attempt in REFUSED:
        if attempt.path != OWN or attempt.verb != "GET":
            status, text = await send(plane, own, attempt)
            assert status == 403, (attempt, text)
            assert "nats.creds" not in text.replace("/data/nats.creds", ""), attempt


async def test_a_new_node_waits_for_its_secret_and_learns_what_lacks(
    kubectl: Kubectl, agent: Agent, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await kubectl.call("DELETE", OWN)
    assert await agent.run() == 1
    assert "name the node n1 to `spazio credentials --nodes`" in capsys.readouterr().err
    for thing in yaml.safe_load_all((folder / "kubernetes.yaml").read_text()):
        if (thing["kind"], thing["metadata"]["name"]) == ("Secret", "spazio-node-n1"):
            await put(kubectl, thing | {"data": {}})
            assert await agent.run() == 1
            assert "lacks nats.creds" in capsys.readouterr().err
            await put(kubectl, thing)
    assert await agent.run() == 0
