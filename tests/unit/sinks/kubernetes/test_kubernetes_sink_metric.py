"""NodeMetrics: what they say of a node, and of one that has come under the name of another."""

from typing import Any

from bus.health import Health
from kube.api import Api
from schemas.sections.measurement import Kube
from schemas.settings import Settings
from sinks.kubernetes import metric, node
from sinks.kubernetes.latest import Latest
from sinks.kubernetes.metric import Metric
from sinks.kubernetes.objects import Objects
from sinks.kubernetes.writing.pace import Pace
from sinks.kubernetes.writing.writer import Writer
from tests.support.processors.predicted import prediction

START = 1_800_000_000.0


class Server(Api):
    """Keeps what is applied."""

    def __init__(self) -> None:
        super().__init__(Kube())
        self.applied: list[dict[str, Any]] = []

    async def send(self, method: str, path: str, body: Any = None, **_: Any) -> dict[str, Any]:
        self.applied.append(body)
        version = {"resourceVersion": str(len(self.applied))}
        return dict(body) | {"metadata": body["metadata"] | version}


def machine(uid: str, created: str, version: int) -> dict[str, Any]:
    metadata = {"name": "n1", "uid": uid, "creationTimestamp": created, "resourceVersion": str(version)}
    return {"metadata": metadata, "status": {}}


async def test_a_new_machine_under_the_name_of_another_has_nothing_that_was_predicted_for_that_one() -> None:
    server, latest, settings = Server(), Latest(), Settings()
    nodes = Objects("nodes", node.reader(settings.output))
    metrics = Objects(metric.RESOURCE, metric.read)
    latest.current.set()
    nodes.whole = metrics.whole = True
    part = Metric(server, nodes, metrics, latest, settings, lambda: START + 65)
    writer = Writer("metric", Health(), Pace(1e6, 1e-3))
    latest.hear(prediction(node="n1", at_us=round(START * 1e6)))
    nodes.put(machine("old", "2027-01-01T00:00:00Z", 1))
    await part.refresh(writer)
    assert server.applied[-1]["status"].keys() == {"prediction"}
    nodes.put(machine("new", "2027-01-15T08:01:00Z", 2))
    await part.refresh(writer)
    assert "status" not in server.applied[-1]
    latest.hear(prediction(node="n1", at_us=round((START + 61) * 1e6)))
    await part.refresh(writer)
    assert server.applied[-1]["status"].keys() == {"prediction"}
    assert server.applied[-1]["metadata"]["ownerReferences"][0]["uid"] == "new"
