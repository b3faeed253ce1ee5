"""Alerts of what writes to a real API server, which fire in a real Prometheus and clear.

Waits and ranges of the rules are sixty times shorter. What is measured runs in this process, whose metrics are read.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
from nats.aio.client import Client

from bus.health import Health
from kube.api import Api
from schemas.sections.measurement import Kube
from schemas.settings import Settings
from sinks.extender import service
from sinks.extender.shadow import Ledger
from spazio.service.addresses import Target
from spazio.service.monitor import Monitor
from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.output.test_output_nodes import lending
from tests.e2e.kubernetes.output.writing import configured, publish, writing
from tests.e2e.kubernetes.rights.rules import kubeconfig, lacking, rules
from tests.support.background import background
from tests.support.extender.placement import START, Clock, Replica, given, report
from tests.support.server.prometheus import MISSING, RULES, Prometheus, hurried, prometheus

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=MISSING)]


@pytest.fixture
async def server() -> AsyncIterator[Prometheus]:
    """A Prometheus that reads this process."""
    targets: list[Target] = []
    monitor = Monitor("127.0.0.1", 0, Health(), lambda: True, targets=lambda _: targets)
    targets.append(Target(targets=[monitor.address.partition("//")[2]], labels={"service": "test"}))
    try:
        with prometheus(
            f"{monitor.address}/targets", hurried(RULES.read_text().replace("> 600", "> 10"), 60)
        ) as running:
            yield running
    finally:
        monitor.close()


async def test_annotations_that_the_api_server_refuses(
    shared: ControlPlane, cluster: Kubectl, server: Prometheus
) -> None:
    replica = Replica(given(extender_kick_seconds="0.3"), Clock())
    replica.clock.now_us = START * 2
    replica.cluster_state.report(report("n1", START * 2, 0.5))
    assert await replica.place("p", ["n1"]) is None
    replica.cluster_state.report(report("n1", START * 2 + 1, 5.0))  # reports of this time never grow old
    api = Api(Kube(config=await kubeconfig(shared, cluster, "spazio-extender")))
    requeueing = replica.waiting.run(replica.settings.extender, replica.cluster_state, partial(service._annotate, api))
    counting = service._count(replica.cluster_state, replica.waiting, Ledger(lambda _: None), Health(), 60)
    (right,) = (rule for rule in rules() if rule.role[1] == "spazio-extender")
    try:
        async with background(requeueing), background(counting):
            async with lacking(cluster, right, "spazio-extender"):
                await asyncio.to_thread(
                    server.fires,
                    SpazioRequeueFailing="the extender cannot annotate nodes",
                    SpazioExtenderPodsWaiting="a pod has found no room for",
                )
            replica.waiting.done("p")
            await asyncio.to_thread(server.clears, "SpazioRequeueFailing", "SpazioExtenderPodsWaiting")
    finally:
        await api.close()


async def test_lent_resources_that_the_api_server_refuses(
    shared: ControlPlane, cluster: Kubectl, client: Client, settings: Settings, server: Prometheus
) -> None:
    config = await kubeconfig(shared, cluster, "spazio-kubernetes")
    (right,) = (rule for rule in rules() if rule[1:] == ("", "nodes/status", "patch", ""))
    await publish(client, lending(1.5))
    async with writing(client, configured(settings, config, full_lease="spazio/spazio-full")):
        async with lacking(cluster, right, "spazio-kubernetes"):
            await asyncio.to_thread(
                server.fires, SpazioKubernetesWritesFailing="writes of mid to the API server fail: forbidden"
            )
        await asyncio.to_thread(server.clears, "SpazioKubernetesWritesFailing")
