"""Binds for kube-scheduler, which may be of any text where a client sends them."""

from typing import Any, cast

from kube.api import Api
from sinks.extender import service


class Requests:
    """An API server that notes the paths of requests."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def send(self, method: str, path: str, content: object = None) -> dict[str, Any]:
        self.paths.append(f"{method} {path}")
        return {}


async def test_a_name_cannot_lead_to_another_path() -> None:
    requests = Requests()
    assert await service.bind_pod(cast("Api", requests), "../kube-system", "x?y/../z", "uid", "n1") == ""
    assert requests.paths == ["POST /api/v1/namespaces/..%2Fkube-system/pods/x%3Fy%2F..%2Fz/binding"]
