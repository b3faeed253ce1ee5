"""The experiment's pipeline has its own server, history and pages, whatever the environment says of the live one."""

import asyncio
from pathlib import Path
from typing import Any, NoReturn

import pytest

from schemas import settings as all_settings
from spazio import truth
from spazio.service.child import Unstartable
from spazio.truth import isolation

LIVE = {
    "nats_url": "nats://live:4222", "nats_credentials": "/live.creds", "nats_partitions": "3",
    "history_dir": "/live/history", "data_dir": "/live", "http_config_file": "/web.yml", "http_host": "::1",
    "otlp_endpoint": "http://collector:4318", "simulated_nodes": "500", "kube_config": "/kubeconfig",
    "extender_bind": "true", "dashboard_token_file": "/token", "govern_journal": "/govern.json",
    "runtime_usage": "false", "containers": "none", "process_replicas": "3",
}  # fmt: skip
MEASURED = {"sample_node": "n7", "sample_interval_seconds": "0.05", "policy_slowdown": "1.7", "model_rank": "2"}


def test_only_what_is_measured_and_computed_is_taken_from_the_settings_of_a_live_pipeline(tmp_path: Path) -> None:
    own = isolation.isolated(all_settings.load(LIVE | MEASURED, environ={}), tmp_path)
    given = all_settings.environment(own)
    assert given == {
        **{f"SPAZIO_{name.upper()}": value for name, value in MEASURED.items()},
        "SPAZIO_DATA_DIR": str(tmp_path),
        "SPAZIO_EXTENDER_KICK": "False",
    }
    assert own.history_dir == tmp_path / "history"


@pytest.mark.parametrize("by_file", [False, True])
def test_the_pipeline_of_an_experiment_is_started_without_the_variables_of_a_live_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], by_file: bool
) -> None:
    started: dict[str, str] = {}

    async def start(*_: str, env: dict[str, str], **__: Any) -> NoReturn:
        started.update(env)
        raise Unstartable("enough")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    file = tmp_path / "live.toml"
    file.write_text('[nats]\nurl = "nats://live:4222"\n[history]\ndir = "/live/history"\n')
    monkeypatch.setenv("LANG", "C")
    for name, value in LIVE.items():
        monkeypatch.setenv(f"SPAZIO_{name.upper()}", value)
    monkeypatch.setenv("SPAZIO_CONFIG", str(file))
    sizes = {"MemTotal": 64 << 20, "MemFree": 0, "MemAvailable": 60 << 20, "Buffers": 0, "Cached": 0}
    (tmp_path / "meminfo").write_text("".join(f"{name}: {size} kB\n" for name, size in sizes.items()))
    proc = {"sample_proc": str(tmp_path)}
    settings = all_settings.load(proc, config=file, environ={}) if by_file else all_settings.load(proc)
    truth.run(settings, tmp_path / "out", quick=True, only=("burn",), again=False, plots=False)
    assert capsys.readouterr().err.strip() == "spazio: enough"
    assert started["LANG"] == "C"
    ours = {name for name in started if name.startswith("SPAZIO_")}
    assert ours == {"SPAZIO_DATA_DIR", "SPAZIO_SAMPLE_PROC", "SPAZIO_EXTENDER_KICK"}
    assert "spazio-truth-" in started["SPAZIO_DATA_DIR"]
