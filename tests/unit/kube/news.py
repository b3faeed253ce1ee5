"""Objects of an API server, what a follower hears of them, and what is to be published of that."""

from typing import Any

from kube.follow import News
from kube.ledger import Ledger
from schemas.messages.facts import NodeFacts, PodFacts

CREATED = "2026-03-02T10:00:00Z"


def pod(name: str, version: int, *, uid: str = "", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name, "namespace": "s", "uid": uid or f"u-{name}", "resourceVersion": str(version),
            "creationTimestamp": CREATED, "labels": labels,
        },
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Pending"},
    }  # fmt: skip


def node(name: str, version: int, **labels: str) -> dict[str, Any]:
    thing = pod(name, version, **labels)
    del thing["metadata"]["namespace"]
    return thing


def changed(thing: dict[str, Any]) -> News:
    return News("changed", int(thing["metadata"]["resourceVersion"]), thing)


def deleted(thing: dict[str, Any]) -> News:
    return News("deleted", int(thing["metadata"]["resourceVersion"]), thing)


def listed(version: int, *things: dict[str, Any]) -> list[News]:
    return [News("listing", 0, {}), *(News("present", version, thing) for thing in things), News("listed", version, {})]


def hear(account: Ledger[Any], *news: News) -> list[tuple[str, int, bool]]:
    """Return (uid, version, deleted) of what is to be published of these news."""
    for each in news:
        account.hear(each, 1)
    return [(uid_of(message), message.version, message.deleted) for message in account.drain()]


def uid_of(message: PodFacts | NodeFacts) -> str:
    return message.pod if isinstance(message, PodFacts) else message.uid
