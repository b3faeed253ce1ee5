"""What a sink has lent outlives neither its end nor its death, on a real API server."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client

from schemas.settings import Settings
from tests.e2e.kubernetes.control_plane import PROGRAMS, ControlPlane, Kubectl, missing
from tests.e2e.kubernetes.output.test_output_nodes import CPU, MEMORY, becomes, lending, lent
from tests.e2e.kubernetes.output.writing import Process, configured, publish, stand_by

pytestmark = pytest.mark.slow

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/spazio-full"
ONLY = {"metrics": False, "floor": False, "full_lease_seconds": 3}


@pytest.fixture
async def nodes(kubectl: Kubectl, client: Client) -> Kubectl:
    """Three nodes, of which two lend; the third has resources of the same name that are somebody else's."""
    for name in ("n1", "n2", "n3"):
        await kubectl.node(name, labels={"by": "kubelet"})
    theirs = {"status": {side: {CPU: "700", MEMORY: "7"} for side in ("capacity", "allocatable")}}
    await kubectl.call("PATCH", "/api/v1/nodes/n3/status?fieldManager=koord-manager", theirs)
    await publish(client, lending(1.5), lending(2.5, node="n2"))
    return kubectl


@pytest.fixture
def processes(plane: ControlPlane, settings: Settings, tmp_path: Path) -> Iterator[list[Process]]:
    """Two sinks, and one that lends no more."""
    chosen = [configured(settings, plane.kubeconfig(), **ONLY, mid=mid) for mid in (True, True, False)]
    made = [Process(each, tmp_path / str(number) / "sink.log") for number, each in enumerate(chosen)]
    for each in made:
        each.log.parent.mkdir()
    yield made
    for each in made:
        each.kill()


async def both_lend(kubectl: Kubectl) -> None:
    await becomes(kubectl, 1500, 10**9, seconds=30)
    await becomes(kubectl, 2500, 10**9, "n2", seconds=30)


async def test_a_sink_that_ends_takes_back_what_it_has_lent_and_the_next_one_lends_again(
    nodes: Kubectl, processes: list[Process]
) -> None:
    first, _, _ = processes
    first.start()
    await both_lend(nodes)
    assert first.end() == 0
    for name in ("n1", "n2"):
        assert await lent(nodes, name) == (None,) * 4
        assert (await nodes.call("GET", f"/api/v1/nodes/{name}"))["status"]["capacity"]["cpu"] == "4"
    assert await lent(nodes, "n3") == ("700", "7") * 2
    assert (await nodes.call("GET", LEASE))["spec"]["holderIdentity"] == ""
    first.start()
    await both_lend(nodes)


async def test_what_a_killed_sink_lent_is_kept_current_by_another_once_its_lease_has_expired(
    nodes: Kubectl, client: Client, processes: list[Process]
) -> None:
    first, second, off = processes
    first.start()
    await both_lend(nodes)
    await stand_by(second)
    # One that only waits neither writes nor takes anything back.
    assert second.end() == 0
    assert await lent(nodes) == ("1500", "1G") * 2
    await stand_by(second)
    first.kill()
    await publish(client, lending(0.5))
    await becomes(nodes, 500, 10**9, seconds=30)
    assert await lent(nodes, "n2") == ("2500", "1G") * 2
    second.kill()
    # One that lends nothing takes back what the dead ones left, too.
    off.start()
    for name in ("n1", "n2"):
        await becomes(nodes, None, None, name, seconds=30)
    assert await lent(nodes, "n3") == ("700", "7") * 2


@pytest.mark.skipif(bool(missing("kubectl")), reason=missing("kubectl"))
async def test_a_line_of_kubectl_takes_back_what_is_left_where_no_sink_starts_again(
    plane: ControlPlane, nodes: Kubectl, processes: list[Process]
) -> None:
    first, _, _ = processes
    first.start()
    await both_lend(nodes)
    first.kill()
    blocks = (Path(__file__).parents[4] / "docs" / "kubernetes.md").read_text().split("```sh\n")
    (line,) = (block.partition("```")[0] for block in blocks if block.startswith("kubectl get nodes -o name |"))
    environ = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "KUBECONFIG": str(plane.kubeconfig()), "HOME": "/nowhere"}
    await asyncio.to_thread(subprocess.run, ["sh", "-c", line], env=environ, capture_output=True, check=True)
    for name in ("n1", "n2", "n3"):
        assert await lent(nodes, name) == (None,) * 4
