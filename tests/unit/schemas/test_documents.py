"""The generated documents say what the code does, and those in `docs/` are the newest."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from schemas import codec, document
from schemas.messages.base import Message
from schemas.messages.estimate import Availability, Blocks, ClassRoom, ClassSum, Cursor, Model
from schemas.messages.facts import NodeFacts, PodFacts, Taint
from schemas.messages.market import Market, Markets
from schemas.messages.placement import (
    Decision,
    Held,
    Promises,
    Ranked,
    Refusal,
    Reservations,
    Shortage,
    Spare,
    Trust,
    WaitingPodKind,
)
from schemas.messages.telemetry import ContainerEvent, EdgeBlock, PodUsageBlock, SampleBlock, Size, SmoothedBlock
from spazio.command import schema
from tests.support.processors import predicted

DOCS = Path(__file__).parents[3] / "docs"
_FILES, _SCHEMAS = schema.files(), document.json_schemas()
BLOCK: dict[str, Any] = {
    "node": "n1", "boot": "b", "seq": 1, "at_us": 2, "step_us": 100_000, "metrics": ["cpu_util"], "values": [0.5, None]
}  # fmt: skip
# Each with all of its fields, those that may be left out among them.
FULL: dict[str, Message] = {
    "samples": SampleBlock(**BLOCK, cpus=4, memory_bytes=1),
    "smoothed": SmoothedBlock(**BLOCK),
    "containers": ContainerEvent(
        node="n1",
        boot="b",
        at_us=1,
        boottime_us=1,
        event="created",
        container="c",
        sources=["docker"],
        kind="batch",
        pod="p",
        namespace="s",
        name="n",
        workload="w",
        container_name="c1",
        image="i",
        sandbox=False,
    ),
    "pods": PodUsageBlock(
        node="n1",
        boot="b",
        seq=1,
        at_us=2,
        span_us=1_000_000,
        system_cpu_cores=0.1,
        system_memory_bytes=5.0,
        pods=["u1", "u2"],
        namespaces=["s", None],
        names=["n", None],
        workloads=["w", None],
        containers=[1, 2],
        cpu_cores=[0.5, None],
        memory_bytes=[1e6, None],
        cpu_pressure=[0.1, None],
        memory_pressure=[0.1, None],
        io_pressure=[0.1, None],
        throttled=[0.0, None],
        ages=[7, 600],
        kinds=["batch", None],
    ),
    "edge": EdgeBlock(
        node="n1",
        boot="b",
        seq=1,
        at_us=2,
        step_us=500_000,
        usage=[0.5, None],
        pods=2,
        waiting=0.5,
        size=Size(cpus=4, memory_bytes=1, pressure=True),
        cores=0.5,
        moment=[0.25, 0.0, 0.5],
    ),
    "decision": Decision(
        namespace="s",
        name="n",
        pod="u",
        at_us=1,
        outcome="placed",
        node="a",
        mode="argmax",
        guaranteed=True,
        note="x",
        workload="s/n",
        strategies={"availability": 1.0},
        nodes=2,
        feasible=1,
        refused={"full": 1},
        ranked=[Ranked(node="a", score=1.0, scores={"availability": 1.0}, room=2.0, reserved=0.0, state="fresh")],
        refusals=[Refusal(node="b", reason="full", needs=["x"])],
        seconds=0.1,
        bound="n2",
        breaks=["no room"],
    ),
    "reservations": Reservations(
        node="a",
        pods={"u": Held(namespace="s", name="n", workload="w", at_us=1, until_us=2, requests={"cpu": 0.1})},
    ),
    "nodefacts": NodeFacts(
        node="n1",
        uid="u",
        version=7,
        at_us=2,
        deleted=True,
        created_us=1,
        ready=True,
        unschedulable=False,
        allocatable={"cpu": 4.0},
        capacity={"cpu": 4.0},
        labels={"a": "b"},
        annotations={},
        taints=[Taint(key="k", value="v", effect="NoSchedule")],
        price=0.5,
        type="t",
        zone="z",
        kubelet="v1.35.7",
    ),
    "podfacts": PodFacts(
        node="n1",
        pod="u1",
        namespace="s",
        name="n",
        version=7,
        at_us=9,
        deleted=True,
        phase="Running",
        terminating=True,
        created_us=1,
        scheduled_us=2,
        started_us=3,
        ready_us=4,
        initialization_seconds=3.0,
        requests={"cpu": 0.1},
        limits={},
        labels={},
        annotations={},
        owner_kind="Deployment",
        owner="d",
        kind="serving",
        workload="s/d",
        priority=0,
        priority_class="p",
        qos="Burstable",
        scheduler="default-scheduler",
    ),
    "availability": Availability(
        node="n1",
        at_us=1,
        seq=1,
        available=1.5,
        lower=1.0,
        upper=2.0,
        signal=1.0,
        cost=0.1,
        capacity=1.0,
        pods=3,
        binding="cpu",
        mode="signal",
        churn=False,
        prior=0.5,
        usage={"cpu": 0.25},
        cpu_used=0.5,
        excess=0.1,
        explained=0.9,
        gap=0.1,
        limits={"cpu": 1.4, "memory": 1e9},
        mix={"w": 1.0},
        since_us=1,
        blocks=Blocks(doubled=1, late=0, missing=2, jumps=0, shared=True),
        outvoted=["size"],
        clock=-3.5,
        free={"cpu": 0.5, "memory": 0.75},
        classes={"w": ClassRoom(available=2.0, lower=1.0, binding="cpu", pods=1, cpu=0.25, memory=0.125)},
    ),
    "model": Model(
        scope="local",
        at_us=1,
        features=["cpu", "memory"],
        moment=[1.0, 0.0, 1.0],
        nodes=1,
        pods=2,
        cost=[0.1, 0.2],
        classes={"w": ClassSum(pods=1.0, cpu=0.5, memory=1e6, nodes=3, votes=1.5)},
        node="n1",
        partition=3,
        repeats=1.0,
        transitions=2.0,
        costed=3,
        voting=4,
        voted=3.5,
        voiced=2.5,
        others=1.5,
        above=[0.5, 0.0],
        below=[0.0, 0.25],
        ratios=True,
    ),
    "prediction": predicted.prediction(),
    "reject": predicted.reject(),
    "subspace": predicted.subspace(),
    "workloads": predicted.sums(),
    "forecast": predicted.forecast(),
    "market": Markets(
        at_us=2,
        since_us=1,
        markets=[Market(type="t", zone="z", spot=True, hours=1.5, price=0.25, interruptions=3)],
    ),
    "shortage": Shortage(
        replica="e-1",
        at_us=7,
        until_us=9,
        pods=3,
        waiting=[WaitingPodKind(workload="s/n", pods=3, since_us=4)],
        full=["n1"],
        stranded=["n2"],
    ),
    "trust": Trust(
        replica="e-1",
        at_us=7,
        mode="shadow",
        risk=0.1,
        nodes=3,
        cores=12.0,
        price=0.3,
        measured=Spare(nodes=1.5, cores=6.0, price=0.15),
        requested=Spare(nodes=0.5, cores=2.0, price=0.05),
        promises=[Promises(namespace="s", settled=2, broken=0, loose=1, evidence=40, against=1, promoted=True)],
    ),
    "cursor": Cursor(stream="S", created="20250101T000000000000Z", sequence=7, stored_us=8, partial=3),
}


@pytest.mark.parametrize("path", sorted(_FILES))
def test_the_file_in_docs_is_what_the_code_makes_now(path: str) -> None:
    present = (DOCS / path).read_text(encoding="utf-8") if (DOCS / path).exists() else ""
    assert present == _FILES[path], f"docs/{path} is not of this code: run `make docs` and commit what it changes"


def test_docs_holds_no_schema_of_a_message_that_is_gone() -> None:
    assert {path.name for path in (DOCS / "schemas").iterdir()} == set(_SCHEMAS)


@pytest.mark.parametrize(("name", "content"), _SCHEMAS.items())
def test_each_schema_is_one_of_draft_2020_12_that_stands_alone(name: str, content: dict[str, Any]) -> None:
    if importlib.util.find_spec("jsonschema"):
        jsonschema = importlib.import_module("jsonschema")
        jsonschema.Draft202012Validator.check_schema(content)
    assert content["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert content["type"] == "object"
    assert content["title"] == codec.MESSAGES[name.removesuffix(".json")].TITLE
    assert content["description"]
    assert set(content["required"]) <= set(content["properties"])
    assert all("type" in field or "anyOf" in field for field in content["properties"].values())
    assert "$ref" not in json.dumps(content)


@pytest.mark.parametrize("kind", codec.MESSAGES)
def test_an_encoded_message_has_exactly_the_fields_of_its_schema(kind: str) -> None:
    encoded = json.loads(codec.encode(FULL[kind]))
    wanted = _SCHEMAS[f"{kind}.json"]
    assert encoded.keys() == wanted["properties"].keys()
    for field in wanted["required"]:
        without = {key: value for key, value in encoded.items() if key != field}
        with pytest.raises(codec.Refused, match=field):
            codec.decode(codec.MESSAGES[kind], json.dumps(without).encode())
    least = {key: value for key, value in encoded.items() if key in wanted["required"]}
    codec.decode(codec.MESSAGES[kind], json.dumps(least).encode())
