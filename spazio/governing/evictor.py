"""Evicts a pod through the Kubernetes API, which asks its disruption budget."""

from urllib.parse import quote

from kube.api import Api
from schemas.messages.facts import PodFacts


async def evict(api: Api, facts: PodFacts) -> None:
    """Ask the API server to evict this pod, and no other of its name.

    Raises:
        Trouble: It refuses, as for a budget that has no room, or does not answer.
    """
    path = f"/api/v1/namespaces/{quote(facts.namespace, safe='')}/pods/{quote(facts.name, safe='')}/eviction"
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": facts.name, "namespace": facts.namespace},
        "deleteOptions": {"preconditions": {"uid": facts.pod}},
    }
    await api.send("POST", path, body)
