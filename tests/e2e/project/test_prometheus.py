"""A real Prometheus reads a running pipeline: every panel's query answers, and alerts come and go with their causes.

Waits and ranges of the rules are sixty times shorter here; tests/integration/project/test_alerts.py has all rules
at true times.
"""

import asyncio
import json
import os
import signal
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import nats
import pytest

from schemas import codec, role
from schemas.messages.base import Message
from schemas.messages.telemetry import SampleBlock
from schemas.subject import Names, token
from spazio.service.composition import machine
from tests.e2e.pipeline import Up, until, up
from tests.support.extender.placement import asked, report
from tests.support.processors import predicted, telemetry
from tests.support.server.prometheus import DASHBOARDS, MISSING, RULES, Prometheus, hurried, prometheus, queries

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

# Predictions come within seconds, and what is published of a silent node is dropped soon.
QUICK = {"predict-update": "1", "predict-check": "1", "predict-report": "1", "cache-expiry": "3"}
# Few nodes are too many, of which a partition may have all, and few messages of one.
LIMITS = ("--process-nodes-max", "12", "--history-node-messages-per-minute", "240")

_RIGHT = 4  # seconds in which the clock that is set back is right


class Watched(NamedTuple):
    """A pipeline and the Prometheus that reads it."""

    pipeline: Up
    server: Prometheus

    def fires(self, meanwhile: Callable[[], None] = lambda: None, **summaries: str) -> None:
        """Wait until each of some alerts has fired, with a summary that begins so; something goes on meanwhile."""
        left = dict(summaries)

        def all_have() -> bool:
            meanwhile()
            for name, summary in self.server.firing().items():
                if name in left and summary.startswith(left[name]):
                    del left[name]
            return not left

        deadline = time.monotonic() + 40
        while not all_have() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert left == {}

    def clears(self) -> None:
        """Wait until nothing fires; what fell behind has a minute to be well again."""
        deadline = time.monotonic() + 60
        while (left := self.server.firing()) and time.monotonic() < deadline:
            time.sleep(0.5)
        assert left == {}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    quick = [text for name, value in QUICK.items() for text in (f"--{name}-seconds", value)]
    options = ("--nodes", "2", "--extender-port", "0", *LIMITS, *quick)
    with up(folder / "data", *options) as pipeline:
        until(lambda: len(pipeline.addresses.get("services", {})) == len(machine.NAMES), 60, "all services")
        until(lambda: folded(pipeline) == 3, 30, "both simulated nodes and this machine")
        with prometheus(f"{pipeline.addresses['http']}/targets", hurried(RULES.read_text(), 60)) as server:
            yield Watched(pipeline, server)


def folded(pipeline: Up) -> float:
    """Return how many nodes a processor knows; those that come before the strange ones keep their places."""
    lines = pipeline.page("process", "/metrics")[1].splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("spazio_nodes{"))


def ask_extender(pipeline: Up) -> None:
    question = {"Pod": asked("p"), "Nodes": None, "NodeNames": [socket.gethostname()]}
    for verb in ("filter", "prioritize"):
        request = urllib.request.Request(f"{pipeline.addresses['extender']}/{verb}", json.dumps(question).encode())
        urllib.request.urlopen(request, timeout=10).close()


def publish_slow_ones(pipeline: Up) -> None:
    """Publish, as processors, what they would only after minutes or where a cluster watch runs."""
    now = time.time_ns() // 1000
    publish_as(
        pipeline,
        "process",
        (Names().of("forecast", "shop", token("Deployment/web")), predicted.forecast(at_us=now)),
        (Names().node("prediction", "n"), predicted.prediction(node="n", at_us=now)),
        (Names().node("reject", "n"), predicted.reject(node="n", at_us=now)),
    )


def publish_as(pipeline: Up, name: str, *messages: tuple[str, Message]) -> None:
    """Publish with the credential of a role."""

    async def publish() -> None:
        credential = pipeline.folder / "credentials" / "roles" / f"{name}.creds"
        url = pipeline.addresses["nats"]
        client = await nats.connect(url, user_credentials=str(credential), inbox_prefix=f"{role.INBOX}_{name}")
        for subject, message in messages:
            await client.jetstream().publish(subject, codec.encode(message))
        await client.close()

    asyncio.run(publish())


def test_every_query_of_every_panel_answers(watched: Watched) -> None:
    wanted = {(path.stem, *query) for path in DASHBOARDS for query in queries(json.loads(path.read_text()), "4s")}
    deadline = time.monotonic() + 40
    while wanted and time.monotonic() < deadline:
        ask_extender(watched.pipeline)
        publish_slow_ones(watched.pipeline)
        wanted = {query for query in wanted if not watched.server.values(query[2])}
        time.sleep(1)
    assert wanted == set()


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_alerts_come_with_their_causes_and_go_with_them(watched: Watched) -> None:
    pipeline = watched.pipeline
    watched.clears()
    pipeline.publish("spazio.samples.x", b"nonsense")
    watched.fires(SpazioDeadLetters="process refuses messages of kind samples")
    with stopped(pipeline.pid("process")):
        watched.fires(SpazioServiceDown="process at 127.0.0.1:", SpazioNoTelemetry="no node reports")
    with stopped(pipeline.pid("nats")):
        watched.fires(SpazioNatsDisconnected="", SpazioServiceDegraded="")
    watched.clears()


def strange(second: int) -> Iterator[SampleBlock]:
    """Yield what strange nodes send in a second: two hosts under one name, one with gaps, a clock set back, many.

    The clock is right for some seconds, since a machine that is behind may leave the first of them out.
    """
    first = round(time.time()) - telemetry.START
    for boot, since in (("a", 0), ("b", 1_000_000)):
        yield telemetry.block("twins", first, seq=since + second).model_copy(update={"boot": boot})
    yield telemetry.block("gaps", first, seq=3 * second)
    yield telemetry.block("slow", first - (5 if second > _RIGHT else 0), seq=second)
    if second == 1:
        yield telemetry.block("early", first + 7200, seq=second)
    for number in range(30):
        yield telemetry.block(f"more-{number}", first, seq=second)


def test_alerts_of_what_nodes_send_and_of_a_service_that_misses_its_time(watched: Watched) -> None:
    pipeline = watched.pipeline
    watched.clears()
    agent, file = pipeline.pid("agent"), pipeline.folder / "run" / "settings.toml"
    before = file.read_text()
    file.write_text("[estimate]\nchurn_limit_seconds = 'often'\n")
    os.kill(pipeline.pid("process"), signal.SIGHUP)
    began = time.time()

    def misbehave() -> None:
        second = 1 + round(time.time() - began)
        sent = [(Names().node("samples", block.node), block) for block in strange(second)]
        publish_as(pipeline, "load", *sent)
        with stopped(agent):
            time.sleep(0.9)

    watched.fires(
        misbehave,
        SpazioSettingsRefused="process",
        SpazioNodeNameShared="1 node names",
        SpazioBlocksMissing="",
        SpazioNodeClockWrong="the clock of slow",
        SpazioHistoryLateRows="",
        SpazioNodesRefused="partition",
        SpazioSamplesMissed="the agent",
    )
    file.write_text(before)
    watched.clears()


def full(at_us: int) -> Iterator[tuple[str, Message]]:
    """Yield what processors say of a cluster of one node, which is full, and of nodes that behave unusually."""
    room = {"default/web": (0.0, 0.0)}
    yield (
        Names().node("availability", "full"),
        report("full", at_us, 0, classes=room, running=4, free={"cpu": 4, "memory": 1e9}),
    )
    for name in ("full", *(f"odd-{number}" for number in range(9))):
        yield Names().node("reject", name), predicted.reject(node=name, at_us=at_us)


def test_alerts_of_a_full_cluster_and_of_a_node_that_sends_too_much(watched: Watched) -> None:
    pipeline = watched.pipeline
    watched.clears()
    now = round(time.time()) - telemetry.START
    sent = [telemetry.block("chatty", now - 300 + second, seq=second) for second in range(300)]
    publish_as(pipeline, "load", *((Names().node("samples", "chatty"), block) for block in sent))

    def publish_full() -> None:
        publish_as(pipeline, "process", *full(time.time_ns() // 1000))

    watched.fires(
        publish_full,
        SpazioHistoryOverQuota="a node sends more rows of samples",
        SpazioClassFull="no more pod of default/web fits",
        SpazioNodesReject="",
    )
    with stopped(pipeline.pid("process")):  # so that this node is the only one
        watched.fires(publish_full, SpazioClusterFull="no more pod fits on any node")
    watched.clears()
