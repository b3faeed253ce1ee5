"""A service of `up` that hangs is killed and started again, and the others go on."""

import json
import os
import signal
from pathlib import Path

import pytest

from spazio.service.composition import machine
from tests.e2e.pipeline import until, up


@pytest.mark.slow
def test_a_stopped_service_and_a_stopped_server_are_restarted_and_counted(tmp_path: Path) -> None:
    with up(tmp_path / "data", SPAZIO_HTTP_HUNG_SECONDS="2", SPAZIO_NATS_PROBE_SECONDS="0.5") as running:
        page = until(lambda: running.addresses["services"].get("process"), 10, "the processor's page")
        for name in ("process", "nats"):
            old = until(lambda name=name: running.pid(name), 10, f"{name} runs")  # type: ignore[misc] # a default of a lambda
            os.kill(old, signal.SIGSTOP)
            until(lambda name=name, old=old: running.pid(name) not in (0, old), 20, f"{name} is started again")  # type: ignore[misc]
            assert running.addresses["hung"][name] == 1
        for name in machine.NAMES:
            until(lambda name=name: running.page(name, "/healthz")[0] == 200, 30, f"{name} is well")  # type: ignore[misc]
        assert running.addresses["services"]["process"] == page  # so Prometheus sees a restart, and no other instance
        document = json.loads(running.run("doctor", "--json").stdout)
        (pipeline,) = [each for each in document if each["name"] == "pipeline"]
        assert "because they hung: " in pipeline["found"]
        assert "process 1" in pipeline["found"]
        assert "child.hung" in running.log.read_text()
