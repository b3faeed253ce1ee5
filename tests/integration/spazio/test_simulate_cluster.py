"""`spazio simulate --from-cluster` lists nodes and pods of an API server, page by page, once."""

from pathlib import Path
from typing import Any

import pytest

from schemas import settings as all_settings
from schemas.sections.measurement import Kube
from spazio.simulation import live
from spazio.simulation.scenario import Unreadable
from tests.integration.kube.api_server import ApiServer, page, pod, refusal


def node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": "3", "creationTimestamp": "2026-03-02T10:00:00Z"},
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts | {"cpu": "3500m"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def static(name: str) -> dict[str, Any]:
    made = pod(name, 3)
    made["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "8a7d6c5b4a39281706f5e4d3c2b1a098"}
    made["metadata"]["ownerReferences"] = [{"kind": "Node", "name": "n1", "uid": "n", "controller": True}]
    return made


def configured(server: ApiServer, folder: Path) -> Kube:
    return all_settings.load({"kube_config": str(server.kubeconfig(folder / "config"))}, environ={}).kube


async def test_a_scenario_is_what_the_cluster_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bound = pod("web-1", 5)
    bound["spec"]["nodeSelector"] = {"disk": "ssd"}
    async with ApiServer().running() as server:
        server.script("nodes", "list", page(7, node("a"), node("b")))
        server.script("pods", "list", page(8, pod("web-0", 4), static("etcd"), rest="more"), page(8, bound))
        made = await live.read(configured(server, tmp_path))
        assert [(group.count, group.cpus, group.reserved_cpu) for group in made.nodes] == [(2, 4, 0.5)]
        assert [(group.name, group.count, group.cores) for group in made.pods] == [("s-web", 2, 0.1)]
        omission = "the scenario leaves out: selectors, affinity and topology spread of 1 pod"
        assert capsys.readouterr().err == f"spazio: {omission}\n"
        assert server.versions("pods") == server.versions("nodes") == []


async def test_a_server_that_refuses_ends_it_with_a_reason(tmp_path: Path) -> None:
    async with ApiServer().running() as server:
        server.script("nodes", "list", *(refusal(403, "nodes is forbidden") for _ in range(9)))
        with pytest.raises(Unreadable, match=r"the cluster's nodes cannot be listed: .*forbidden"):
            await live.read(configured(server, tmp_path))
