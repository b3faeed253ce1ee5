"""A real Prometheus reads a running pipeline: every panel's query answers, and alerts come and go with their causes.

Waits and ranges of the rules are sixty times shorter here; tests/integration/project/test_alerts.py has all rules
at true times.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.subject import token
from spazio.service.composition import machine
from tests.e2e.pipeline import Up, set_back, until, up
from tests.e2e.project import trouble
from tests.e2e.project.trouble import NAMES
from tests.e2e.project.watched import Watched, ask_extender, ask_in_vain, ask_slowly, publish_as
from tests.support.extender.asking import make_keys
from tests.support.processors import predicted
from tests.support.server.program import stopped
from tests.support.server.prometheus import DASHBOARDS, MISSING, RULES, hurried, prometheus, queries

# Its alerts are about what is late, and several other tests on two CPUs make things late.
pytestmark = [pytest.mark.slow, pytest.mark.paired, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

# Predictions come within seconds, pods that are gone give their places back, and what is published of a silent node is
# dropped soon, but not before it is old.
QUICK = {
    "predict-expiration": "20",
    "predict-update": "1",
    "predict-check": "1",
    "predict-report": "1",
    "estimate-report": "1",
    "cache-expiry": "9",
}
PROC = "proc"
# Few nodes are too many, of which a partition may have all, few pods, few messages of one node, and few that wait.
LIMITS = {
    "process-nodes-max": "12",
    "process-pods-max": "300",
    "sample-buffer-blocks": "2",
    "extender-failure": "open",
    "history-node-messages-per-minute": "240",
}


def options(folder: Path) -> Iterator[str]:
    """Yield the options of the pipeline; a folder is for its files."""
    make_keys(folder)
    trouble.make_proc(folder / PROC)
    files = {"dashboard-tls-cert": trouble.CERTIFICATE, "dashboard-tls-key": "server.key"}
    given = {f"{name}-seconds": value for name, value in QUICK.items()} | LIMITS
    given |= {name: str(folder / file) for name, file in (files | {"sample-proc": PROC}).items()}
    for name, value in (given | {"nodes": "2", "extender-port": "0"}).items():
        yield from (f"--{name}", value)


def rules() -> str:
    """Return the rules for a test: a node is silent after ten seconds, and for forty.

    Restarts count for a minute and damaged files for 40 seconds: the test that makes them does other harm meanwhile.
    """
    text = RULES.read_text().replace("time() - 60", "time() - 10")
    for name, before, after in (
        ('process_start_time_seconds{job="spazio"}', "[15m]", "[60m]"),
        ("spazio_history_damaged_files_total", "[10m]", "[40m]"),
        ("", "[15m]", "[40m]"),
    ):
        text = text.replace(f"{name}{before}", f"{name}{after}")
    return hurried(text, 60)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    with up(folder / "data", *options(folder)) as pipeline:
        until(lambda: len(pipeline.addresses.get("services", {})) >= len(machine.NAMES), 60, "all services")
        until(lambda: folded(pipeline) == 3, 60, "both simulated nodes and this machine")
        with prometheus(f"{pipeline.addresses['http']}/targets", rules()) as server:
            until(lambda: len(server.values("up == 1")) >= len(machine.NAMES), 60, "all services are read")
            yield Watched(pipeline, server)


def folded(pipeline: Up) -> float:
    """Return how many nodes a processor knows; those that come before the strange ones keep their places."""
    lines = pipeline.page("process", "/metrics")[1].splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("spazio_nodes{"))


def publish_slow_ones(pipeline: Up) -> None:
    """Publish, as processors, what they would only after minutes or where a cluster watch runs."""
    now = time.time_ns() // 1000
    publish_as(
        pipeline,
        "process",
        (NAMES.of("forecast", "shop", token("Deployment/web")), predicted.forecast(at_us=now)),
        (NAMES.node("prediction", "n"), predicted.prediction(node="n", at_us=now, assumed=None)),
        (NAMES.node("reject", "n"), predicted.reject(node="n", at_us=now)),
    )


def test_every_query_of_every_panel_answers(watched: Watched) -> None:
    wanted = {(path.stem, *query) for path in DASHBOARDS for query in queries(json.loads(path.read_text()), "4s")}
    deadline = time.monotonic() + 40
    while wanted and time.monotonic() < deadline:
        ask_extender(watched.pipeline)
        publish_slow_ones(watched.pipeline)
        wanted = {query for query in wanted if not watched.server.values(query[2])}
        time.sleep(1)
    assert wanted == set()


def test_alerts_of_bad_messages_and_of_processes_that_do_not_answer(watched: Watched) -> None:
    pipeline = watched.pipeline
    watched.server.clears()
    trouble.flood_with_nonsense(pipeline)
    watched.server.fires(
        lambda: trouble.ask_for_a_pod_with_a_long_name(pipeline),
        SpazioDeadLetters="process refuses messages of kind samples",
        SpazioDeadLettersUnkept="process refuses more messages of kind samples than it keeps",
        SpazioDecisionsDropped="decisions",
        SpazioMessagesUnpublishable="extender makes messages that no server takes: subject_too_long",
    )
    with stopped(pipeline.pid("process")):
        watched.server.fires(SpazioServiceDown="process at 127.0.0.1:", SpazioNoTelemetry="no node reports")
    with stopped(pipeline.pid("nats")):
        watched.server.fires(
            lambda: ask_in_vain(pipeline),
            SpazioNatsDisconnected="",
            SpazioServiceDegraded="",
            SpazioMessagesDropped="agent at 127.0.0.1:",
            SpazioExtenderUnguaranteed="pods were placed on nodes without telemetry, or without a reservation",
            SpazioExtenderErrors="the extender answers other with 503",
        )
    watched.server.clears()


def test_alerts_of_what_nodes_send_and_of_a_service_that_misses_its_time(watched: Watched) -> None:
    pipeline = watched.pipeline
    watched.server.clears()
    agent, file = pipeline.pid("agent"), pipeline.folder / "run" / "settings.toml"
    before = file.read_text()
    file.write_text("[estimate]\nchurn_limit_seconds = 'often'\n")
    os.kill(pipeline.pid("process"), signal.SIGHUP)
    trouble.publish_facts(pipeline)
    began = time.time()

    def misbehave() -> None:
        second = 1 + round(time.time() - began)
        publish_as(pipeline, "load", *trouble.strange(second))
        with stopped(agent):
            time.sleep(0.9)

    with trouble.damaged_source(pipeline.folder.parent / PROC):
        watched.server.fires(misbehave, SpazioSourceFailing="disk")
    watched.server.fires(
        misbehave,
        SpazioSettingsRefused="process",
        SpazioNodeNameShared="1 node names",
        SpazioNodeContradicted="1 nodes",
        SpazioBlocksMissing="",
        SpazioNodeClockWrong="the clock of slow",
        SpazioHistoryLateRows="",
        SpazioNodesRefused="partition",
        SpazioPodsRefused="partition",
        SpazioSamplesMissed="the agent",
    )
    file.write_text(before)
    watched.server.clears()


def test_alerts_of_a_full_cluster_and_of_a_node_that_sends_too_much(watched: Watched) -> None:
    pipeline = watched.pipeline
    watched.server.clears()
    publish_as(pipeline, "load", *trouble.chatter())

    def publish_full() -> None:
        publish_as(pipeline, "process", *trouble.full(time.time_ns() // 1000))
        ask_slowly(pipeline, seconds=0.7)

    watched.server.fires(
        publish_full,
        SpazioExtenderSlow="filter takes",
        SpazioHistoryOverQuota="a node sends more rows of samples",
        SpazioClassFull="no more pod of default/web fits",
        SpazioNodesReject="",
    )
    with stopped(pipeline.pid("process")):  # so that this node is the only one
        watched.server.fires(publish_full, SpazioClusterFull="no more pod fits on any node")
    watched.server.clears()


def test_alerts_of_what_the_server_and_the_files_lose(watched: Watched, tmp_path: Path) -> None:
    pipeline = watched.pipeline
    watched.server.clears()
    with trouble.full_checkpoints(pipeline):
        trouble.take_leases(pipeline)
        watched.server.fires(SpazioCheckpointsFailing="process", SpazioLeasesLost="process")
    set_back(pipeline, tmp_path / "copy")
    watched.server.fires(SpazioStreamSetBack="", SpazioHistoryGap="the history has a gap in SPAZIO_")
    watched.server.clears()


def test_alerts_of_what_happens_again_and_again_and_of_what_is_looked_at_once_a_minute(watched: Watched) -> None:
    pipeline = watched.pipeline
    watched.server.clears()

    kills = iter(range(5))

    def lose_the_server() -> None:
        if next(kills, None) is not None:
            trouble.kill(pipeline, "nats")
            until(lambda: pipeline.page("process", "/readyz")[0] == 200, 20, "the processor is connected again")
        publish_as(pipeline, "process", trouble.prediction(exceeded=0.9))

    with trouble.unreadable_history(pipeline):
        for _ in range(4):
            trouble.kill(pipeline, "cache")
            until(lambda: pipeline.page("cache", "/readyz")[0] == 200, 20, "the cache is written again")
            time.sleep(1.5)  # until it was read
        watched.server.fires(SpazioServiceRestarting="cache at 127.0.0.1:")
        set_aside = trouble.damage_history(pipeline)
        watched.server.fires(
            lose_the_server,
            seconds=120,
            SpazioNatsUnstable="",
            SpazioHistoryDamagedFiles="files of the history cannot be read",
            SpazioHistoryUpkeepFailing="the history cannot do its upkeep: inspect",
            SpazioPredictionsExceeded="",
        )
    set_aside.unlink()
    publish_as(pipeline, "process", trouble.prediction(exceeded=0.0))
    watched.server.clears()


def test_an_alert_of_ids_that_somebody_else_has_used(watched: Watched) -> None:
    watched.server.clears()
    with trouble.stolen_key(watched.pipeline):
        trouble.claim_ids(watched.pipeline)
        watched.server.fires(SpazioMessageIdsClaimed="somebody used message ids of agent at 127.0.0.1:")
    watched.server.clears()


def test_alerts_of_late_numbers_a_silent_node_and_a_damaged_certificate_and_all_clear(watched: Watched) -> None:
    pipeline = watched.pipeline
    watched.server.clears()
    with trouble.damaged_certificate(pipeline), trouble.silence(pipeline):
        watched.server.fires(
            SpazioCacheStale="the scheduler cache gets numbers that are",
            SpazioNodeSilent="",
            SpazioCertificateKept="dashboard",
        )
    watched.server.clears(besides="")
