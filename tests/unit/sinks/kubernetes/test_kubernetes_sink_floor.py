"""Floors in virtual time: when they are lowered, and what an API server is asked for."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from bus.health import Health
from kube import answer
from kube.api import Api
from schemas.sections.measurement import Kube
from schemas.sections.output import Output
from sinks.kubernetes import autoscaler, node
from sinks.kubernetes.autoscaler import Scaler
from sinks.kubernetes.floor import Floor
from sinks.kubernetes.latest import Latest
from sinks.kubernetes.objects import Objects
from sinks.kubernetes.writing.access import Access
from sinks.kubernetes.writing.holder import Holder
from sinks.kubernetes.writing.lease import Lease
from sinks.kubernetes.writing.pace import Pace
from sinks.kubernetes.writing.writer import Writer
from tests.support.processors.predicted import forecast

START = 1_800_000_000.0


class Server(Api):
    """Keeps one autoscaler; an apply sets what it says, and takes away those annotations of ours that it does not."""

    def __init__(self) -> None:
        super().__init__(Kube())
        self.thing: dict[str, Any] = {
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "1",
                "annotations": {"spazio.floor": "true", "other": "x"},
            },
            "spec": {
                "minReplicas": 2, "maxReplicas": 10, "scaleTargetRef": {"kind": "Deployment", "name": "web"},
            },
        }  # fmt: skip
        self.sent: list[dict[str, Any]] = []
        self.races = 0
        self.deleted = False
        self.lease: dict[str, Any] = {}

    async def send(self, method: str, path: str, body: Any = None, **_: Any) -> dict[str, Any]:
        metadata = self.thing["metadata"]
        if "leases" in path:
            if method != "GET":
                self.lease = body | {"metadata": body["metadata"] | {"resourceVersion": "1"}}
            return self.lease
        if method == "GET":
            assert path == "/apis/autoscaling/v2/horizontalpodautoscalers"  # there is no right to get one
            return {"items": [] if self.deleted else [copy.deepcopy(self.thing)]}
        if self.races:
            self.races -= 1
            metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
            raise answer.Conflict("the object has been modified")
        assert path.endswith("/namespaces/shop/horizontalpodautoscalers/web")
        assert body["metadata"]["resourceVersion"] == metadata["resourceVersion"]
        self.sent.append(body)
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
        if "managedFields" in body["metadata"]:
            metadata["managedFields"] = []
            return copy.deepcopy(self.thing)
        kept = {key: value for key, value in metadata["annotations"].items() if not key.startswith("spazio.floor-")}
        metadata["annotations"] = kept | body["metadata"]["annotations"]
        self.thing["spec"] |= body.get("spec", {})
        fields: dict[str, Any] = {"f:spec": {"f:minReplicas": {}}}
        metadata["managedFields"] = [{"manager": "spazio", "operation": "Apply", "fieldsV1": fields}]
        return copy.deepcopy(self.thing)


class Sink:
    """A floor, looked at by tests; the Lease of an earlier one has expired, unless it runs beside."""

    def __init__(self, server: Server | None = None, *, beside: bool = False, **output: Any) -> None:
        self.server = server or Server()
        self.server.lease = self.server.lease if beside else {}
        self.latest = Latest()
        self.latest.current.set()
        self.scalers: Objects[Scaler] = Objects(autoscaler.RESOURCE, autoscaler.reader("spazio.floor"))
        self.scalers.whole = True
        self.scalers.put(self.server.thing)
        self.now = START
        chosen, self.health = Output.model_validate(output), Health()
        nodes = Objects("nodes", node.reader(chosen))
        self.lease = Holder(Lease(self.server, chosen.full_lease, chosen.full_lease_seconds), self.health)
        access = Access(self.server, nodes, self.latest, chosen, self.lease, lambda: self.now)
        self.floor = Floor(access, self.scalers)
        self.writer = Writer("floor", self.health, Pace(1e6, 1e-3))

    def hear(self, desired: int, at: float, *, raises: bool = True) -> None:
        messages = forecast(
            namespace="shop", workload="web", desired=desired, raises=raises, at_us=round((START + at) * 1e6)
        )
        self.latest.forecasts["shop", "Deployment", "web"] = messages

    async def refresh(self, at: float) -> int:
        """Return minReplicas after a refresh."""
        self.now = START + at
        await self.floor.refresh(self.writer)
        return int(self.server.thing["spec"]["minReplicas"])


async def test_a_floor_is_raised_at_once_and_lowered_after_forecasts_were_lower_for_so_long() -> None:
    sink = Sink(floor_seconds=300)
    seen = []
    for at, desired in ((0, 4), (15, 8), (30, 5), (200, 5), (314, 5), (316, 3), (500, 3), (615, 3), (617, 3), (632, 2)):
        sink.hear(desired, at)
        seen.append((at, await sink.refresh(at)))
    assert seen == [(0, 4), (15, 8), (30, 8), (200, 8), (314, 8), (316, 5), (500, 5), (615, 3), (617, 3), (632, 3)]


async def test_the_autoscalers_own_target_counts_and_an_annotation_before_it() -> None:
    aim = {"type": "Utilization", "averageUtilization": 50}
    server = Server()
    server.thing["spec"] |= {
        "maxReplicas": 30,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": aim}}],
    }
    messages = forecast(
        namespace="shop", workload="web", desired=8, pods=4, at_us=round(START * 1e6),
        requested={"cpu": 4.0, "memory": 4e9}, current={"cpu": 2.0, "memory": 1e9},
        forecast={"cpu": 6.0, "memory": 1e9},
    )  # fmt: skip
    sink = Sink(server)
    sink.latest.forecasts["shop", "Deployment", "web"] = messages
    assert await sink.refresh(0) == 12
    server = Server()
    server.thing["spec"] |= {"maxReplicas": 30, "metrics": sink.server.thing["spec"]["metrics"]}
    server.thing["metadata"]["annotations"]["spazio.floor-target"] = "0.6"
    sink = Sink(server)
    sink.latest.forecasts["shop", "Deployment", "web"] = messages
    assert await sink.refresh(0) == 10


async def test_the_same_forecast_is_not_written_twice() -> None:
    sink = Sink()
    for at in range(0, 600, 15):
        sink.hear(6, at)
        assert await sink.refresh(at) == 6
    assert len(sink.server.sent) == 1


async def test_forecasts_that_foresee_no_rise_or_are_old_or_of_a_wrong_clock_raise_nothing() -> None:
    sink = Sink(forecast_seconds=120)
    sink.hear(6, 0, raises=False)
    assert await sink.refresh(0) == 2
    sink.hear(6, 0)
    assert await sink.refresh(121) == 2
    assert await sink.refresh(-121) == 2
    assert await sink.refresh(119) == 6
    assert await sink.refresh(121) == 2
    assert sink.server.thing["metadata"]["annotations"] == {"spazio.floor": "true", "other": "x"}


async def test_another_life_keeps_a_floor_as_if_it_had_just_been_raised() -> None:
    before = Sink()
    before.hear(8, 0)
    assert await before.refresh(0) == 8
    after = Sink(before.server, floor_seconds=300)
    after.hear(3, 400)
    assert await after.refresh(400) == 8
    after.hear(3, 690)
    assert await after.refresh(690) == 8
    after.hear(3, 701)
    assert await after.refresh(701) == 3


@pytest.mark.parametrize("output", [{}, {"floor": False}])
async def test_another_life_without_forecasts_or_that_is_switched_off_restores_at_once(
    output: Mapping[str, Any],
) -> None:
    before = Sink()
    before.hear(8, 0)
    await before.refresh(0)
    after = Sink(before.server, **output)
    if output:
        after.hear(8, 1)
    assert await after.refresh(1) == 2


@pytest.mark.parametrize("output", [{}, {"floor": False}])
async def test_a_sink_that_stands_by_leaves_the_floors_of_the_other_until_that_is_gone(
    output: Mapping[str, Any],
) -> None:
    active = Sink()
    active.hear(8, 0)
    await active.refresh(0)
    beside = Sink(active.server, beside=True, **output)
    assert [await beside.refresh(at) for at in (1, 2)] == [8, 8]
    await beside.floor.end()
    assert await active.refresh(3) == 8
    assert len(active.server.sent) == 1
    await active.lease.release()
    heir = Sink(active.server, beside=True, **output)
    assert await heir.refresh(4) == 2


async def test_a_sink_that_may_no_longer_write_has_no_problem_with_its_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink()
    sink.hear(8, 0)

    async def refuse(*_: object) -> None:
        raise answer.Away("connection refused")

    async def lost() -> bool:
        return False

    with monkeypatch.context() as away:
        away.setattr(sink.floor, "_carry_out", refuse)
        await sink.refresh(0)
    assert sink.health.problems == {"kubernetes write floor": "connection refused"}
    monkeypatch.setattr(sink.lease, "acquire", lost)  # another sink has it
    assert await sink.refresh(60) == 2
    assert not sink.health.problems


async def test_nothing_is_done_before_everything_is_known() -> None:
    sink = Sink()
    sink.hear(8, 0)
    sink.latest.current.clear()
    assert await sink.refresh(0) == 2
    sink.latest.current.set()
    sink.scalers.whole = False
    assert await sink.refresh(0) == 2


async def test_the_end_restores_and_gives_back_what_is_there_then() -> None:
    sink = Sink()
    sink.hear(8, 0)
    await sink.refresh(0)
    # The autoscaler's status has changed since, which nobody has reported.
    sink.server.thing["metadata"]["resourceVersion"] = "77"
    await sink.floor.end()
    assert sink.server.thing["spec"]["minReplicas"] == 2
    assert sink.server.thing["metadata"]["managedFields"] == []
    assert [set(body.get("spec", {})) for body in sink.server.sent] == [{"minReplicas"}, {"minReplicas"}, set()]
    await sink.floor.end()
    assert len(sink.server.sent) == 3


async def test_the_end_restores_also_what_others_write_at_that_moment() -> None:
    sink = Sink()
    sink.hear(8, 0)
    await sink.refresh(0)
    sink.server.races = 2
    await sink.floor.end()
    assert sink.server.thing["spec"]["minReplicas"] == 2


async def test_the_end_leaves_alone_what_is_deleted_at_that_moment() -> None:
    sink = Sink()
    sink.hear(8, 0)
    await sink.refresh(0)
    sink.server.races = 1
    send = sink.server.send

    async def deleted(method: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        try:
            return await send(method, *arguments, **options)
        finally:
            sink.server.deleted = method == "PATCH"

    sink.server.send = deleted  # type: ignore[method-assign]
    await sink.floor.end()
    assert len(sink.server.sent) == 1
