"""Settings: who wins, what is reported of faults, and that they survive the way through an environment."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import settings
from schemas.sections import ranking
from schemas.sections.bus import Data
from schemas.settings import Settings
from spazio import option

FIELDS = {settings.option_name(core, field): (core, field) for core, field, _ in settings.options()}
# One value other than the default for every setting.
OTHER: dict[str, Any] = {
    "prefix": "lab-7", "data_dir": Path("/srv/a b"), "data_min_free_bytes": 1,
    "nats_url": "tls://u:p@n:1", "nats_port": 0, "nats_partitions": 3, "nats_ping_interval_seconds": 7,
    "nats_probe_seconds": 4, "nats_credentials": Path("/n.creds"), "nats_ca": Path("/ca.pem"),
    "nats_cert": Path("/c.pem"), "nats_key": Path("/c.key"),
    "nats_connect_timeout_seconds": 0.25, "nats_request_timeout_seconds": 0.001, "nats_duplicate_window_seconds": 63,
    "nats_telemetry_max_age_seconds": 60, "nats_estimates_max_age_seconds": 61, "nats_events_max_age_seconds": 62,
    "nats_telemetry_max_bytes": 4096, "nats_estimates_max_bytes": 4097, "nats_events_max_bytes": 4098,
    "nats_dead_max_age_seconds": 64, "nats_dead_max_bytes": 4099, "nats_bucket_max_bytes": 4100,
    "nats_checkpoints_max_bytes": 4101, "process_nodes_max": 77, "process_pods_max": 78,
    "http_host": "::1", "http_port": 65_535, "http_config_file": Path("/web.yml"), "http_hung_seconds": 31,
    "http_busy_seconds": 301, "otlp_endpoint": "https://c:4318/x", "otlp_seconds": 16,
    "sample_node": "ip-10-0-0-7.example", "sample_interval_seconds": 0.05, "sample_buffer_blocks": 5,
    "sample_proc": Path("/host/proc"), "sample_cgroup": Path("/host/cgroup"),
    "edge_model_change": 0.3, "edge_model_seconds": 41, "edge_save_seconds": 42,
    "containers": ("docker", "cgroup"), "runtime_docker_socket": Path("/d.sock"), "runtime_rescan_seconds": 3,
    "runtime_containerd_socket": Path("/c.sock"), "runtime_bundles": (Path("/a"), Path("/b")),
    "runtime_usage": False, "runtime_buffer_events": 9, "kube_config": Path("/k"), "kube_context": "c", "kube_page": 3,
    "kube_watch_seconds": 22, "kube_price_label": "p", "kube_save_seconds": 23,
    "smoothing_form": "dynamic_ema", "smoothing_window": 9, "smoothing_publish": False, "smoothing_nodes_max": 7,
    "model_variant": "carico", "model_features": ("memory", "cpu"), "model_rank": 2, "model_tau_seconds": 11.5,
    "model_global_weight": 0.0, "model_silent_seconds": 12, "model_publish_local": True,
    "policy_slowdown": 1.7, "policy_eviction_bytes": 98, "policy_whole": False,
    "estimate_form": "least_squares", "estimate_slowdown": 1.5, "estimate_headroom_cpu": 0.1,
    "estimate_headroom_memory": 0.2, "estimate_memory_seconds": 13, "estimate_level_seconds": 14,
    "estimate_pod_cores": 0.3, "estimate_pod_memory_bytes": 99, "estimate_prior_deviation": 0.4,
    "estimate_max_pods": 250, "estimate_process_noise": 1e-7, "estimate_settle_seconds": 15,
    "estimate_hold_in_churn": False, "estimate_churn_limit_seconds": 24, "estimate_classes": 3,
    "estimate_change_pods": 0.5, "estimate_report_seconds": 16,
    "predict_enabled": False, "predict_model": "max", "predict_violation": 0.2, "predict_sigma": 3,
    "predict_percentile_cpu": 0.9, "predict_percentile_memory": 0.91, "predict_half_life_cpu_seconds": 43,
    "predict_half_life_memory_seconds": 44, "predict_margin": 0.2, "predict_overcommit": 1.3,
    "predict_cold_start_seconds": 45, "predict_evidence_seconds": 58, "predict_formula": "mixed",
    "predict_reclaim_ratio": 0.92, "predict_mid_rise": 0.25,
    "predict_threshold_cpu": 0.93, "predict_threshold_memory": 0.94, "predict_unallocated_ratio": 0.95,
    "predict_update_seconds": 46, "predict_check_seconds": 47, "predict_report_seconds": 48,
    "predict_force_seconds": 49, "predict_change": 0.96, "predict_horizon_seconds": 50,
    "predict_expiration_seconds": 51, "predict_workloads": 52, "predict_checkpoint_seconds": 53,
    "reject_enabled": False, "reject_threshold": 0.7, "reject_report_seconds": 54,
    "reject_subspace": "global", "reject_merge_seconds": 7,
    "forecast_enabled": False, "forecast_seconds": 56, "forecast_model": "other", "forecast_target": 0.55,
    "forecast_history_multiple": 7, "forecast_initialization_seconds": 57, "forecast_memory_bytes": 58,
    "extender_host": "::1", "extender_port": 1, "extender_tls_cert": Path("/c.pem"), "extender_tls_key": Path("/k.pem"),
    "extender_tls_client_ca": Path("/ca.pem"), "extender_mode": "shadow", "extender_strategies": "peak=2+weighted",
    "extender_promote": True, "extender_promote_risk": 0.2, "extender_promote_promises": 90,
    "extender_profiles": ("batch:most_allocated",), "extender_unknown": "reject", "extender_stale_seconds": 59,
    "extender_failure": "open", "extender_release": "running", "extender_settle_seconds": 4,
    "extender_reservation_seconds": 60, "extender_store_seconds": 0.2, "extender_bind": True, "extender_kick": False,
    "extender_kick_seconds": 5, "extender_body_bytes": 2048, "extender_resources": ("cpu=2", "nvidia.com/gpu=3"),
    "extender_shape": ("0=10", "100=0"), "extender_target": 0.6, "extender_factors": ("fit=2", "price=0"),
    "extender_high_priority": 7, "extender_window_seconds": 61, "extender_allow_anonymous": True,
    "extender_market_hours": 62, "extender_minimum_availability": 0.97,
    "extender_shortage_seconds": 8, "extender_unconfirmed_seconds": 11, "extender_unconfirmed_pods": 17,
    "output_mid": True, "output_mid_nodes": "pool=spare",
    "output_mid_cpu": "a/b", "output_mid_memory": "a/c", "output_diff": 0.2,
    "output_writes_per_second": 33.5,
    "output_force_seconds": 62, "output_stale_seconds": 63, "output_metrics": False, "output_floor": False,
    "output_floor_annotation": "x", "output_floor_seconds": 64, "output_forecast_seconds": 65,
    "output_look_seconds": 66, "output_full": True, "output_full_share": 0.25, "output_full_seconds": 67,
    "output_full_hold_seconds": 68, "output_full_lease": "a/b", "output_full_lease_seconds": 69, "output_keep": True,
    "output_external": True, "output_external_host": "::1", "output_external_port": 8844,
    "output_external_tls_cert": Path("/c.pem"), "output_external_tls_key": Path("/k.pem"),
    "output_external_tls_client_ca": Path("/ca.pem"),
    "govern_interval_seconds": 2, "govern_reserve": 0.3, "govern_floor": 0.05, "govern_pressure_high": 0.4,
    "govern_pressure_low": 0.15, "govern_release": 0.5, "govern_memory_reserve": 0.11, "govern_memory_low": 0.04,
    "govern_evict": True, "govern_evict_after_seconds": 31, "govern_evict_seconds": 67, "govern_facts_seconds": 68,
    "govern_journal": Path("/srv/govern.json"),
    "process_checkpoint_seconds": 17, "process_tick_seconds": 0.0, "process_batch": 18,
    "process_failover_seconds": 7.0, "nats_replicas": 3,
    "history_dir": Path("/srv/h"), "history_flush_seconds": 19, "history_retention_seconds": 20,
    "history_retention_1s_seconds": 25, "history_retention_10s_seconds": 26, "history_retention_1m_seconds": 27,
    "history_ahead_seconds": 3601, "history_max_bytes": 4099, "history_node_messages_per_minute": 6001,
    "history_buffer_rows": 2000, "cache_expiry_seconds": 21, "log_level": "debug", "log_format": "json",
    "dashboard_host": "::1", "dashboard_port": 8803, "dashboard_token_file": Path("/srv/token"),
    "dashboard_tls_cert": Path("/srv/d.crt"), "dashboard_tls_key": Path("/srv/d.key"), "dashboard_viewers_max": 3,
    "dashboard_query_seconds": 4, "dashboard_query_rows": 500, "dashboard_allow_anonymous": True,
    "process_replicas": 3, "process_replica": 2, "process_aggregate": False, "process_shed": False,
    "process_collect": False,
    "simulated_nodes": 25, "simulated_seed": 26,
    "simulated_speed": 2.5,
    "simulated_seconds": 27.5, "simulated_metrics": ("pods", "cpu_util"),
    "simulated_start_us": 28, "simulated_kinds": ("samples", "pods"), "simulated_churn_per_minute": 29,
    "simulated_follow": True, "simulated_wave_seconds": 30.5, "simulated_prepared_seconds": 31,
    "simulated_in_flight": 32,
    "replay_map": ("cpu=a", "memory=b/2"), "replay_speed": 33.5, "replay_shift": True, "replay_cpus": 34,
    "replay_memory_bytes": 35, "replay_step_seconds": 36, "replay_model_lag_seconds": 37, "replay_ahead": 3800,
}  # fmt: skip


def text_of(flat: str) -> str:
    other = OTHER[flat]
    return ",".join(map(str, other)) if isinstance(other, tuple) else str(other)


def value(loaded: Settings, flat: str) -> Any:
    core, field = FIELDS[flat]
    return getattr(getattr(loaded, core) if core else loaded, field)


def test_every_setting_has_another_value_in_this_file() -> None:
    assert OTHER.keys() == FIELDS.keys()
    defaults = settings.load(environ={})
    assert not [flat for flat, other in OTHER.items() if value(defaults, flat) == other]


def choices(annotation: Any) -> list[str]:
    """Return the words that a setting can be, also those of a union's members and of a list's entries."""
    annotation = getattr(annotation, "__value__", annotation)
    if get_origin(annotation) is Literal:
        return [word for word in get_args(annotation) if isinstance(word, str)]
    return [word for part in get_args(annotation) for word in choices(part)]


def test_a_description_names_every_word_that_its_setting_can_be() -> None:
    options = {settings.option_name(core, name): info for core, name, info in settings.options()}
    words = {(flat, word) for flat, info in options.items() for word in choices(info.annotation)}
    words |= {("extender_strategies", name) for name in ranking.STRATEGIES}
    assert len(words) >= 30
    assert not [(flat, word) for flat, word in words if not re.search(rf"\b{word}\b", options[flat].description or "")]


def by_flag(flat: str, text: str) -> Settings:
    return settings.load({flat: text}, environ={})


def by_environment(flat: str, text: str) -> Settings:
    return settings.load(environ={"SPAZIO_" + flat.upper(): text})


def by_parser(flat: str, text: str) -> Settings:
    return option.parse("agent", "", ["--" + flat.replace("_", "-"), text])


@pytest.mark.cases
@pytest.mark.parametrize("way", [by_flag, by_environment, by_parser])
@pytest.mark.parametrize("flat", OTHER)
def test_each_setting_can_be_given_alone(flat: str, way: Callable[[str, str], Settings]) -> None:
    loaded = way(flat, text_of(flat))
    assert value(loaded, flat) == OTHER[flat]
    default = settings.load(environ={})
    assert [each for each in FIELDS if value(loaded, each) != value(default, each)] == [flat]


@pytest.mark.slow
@given(st.sets(st.sampled_from(sorted(OTHER))))
def test_an_environment_made_of_settings_gives_them_again(names: set[str]) -> None:
    loaded = settings.load({flat: text_of(flat) for flat in names}, environ={})
    made = settings.environment(loaded)
    assert set(made) == {"SPAZIO_" + flat.upper() for flat in names}
    assert settings.load(environ=made) == loaded
    assert settings.unknown_environment(made) == []


def test_the_command_line_wins_over_the_environment_which_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "spazio.toml"
    file.write_text('prefix = "file"\n[nats]\nport = 1\npartitions = 4\n[log]\nlevel = "error"\n')
    environ = {"SPAZIO_PREFIX": "env", "SPAZIO_NATS_PORT": "2"}
    loaded = settings.load({"prefix": "flag", "log_level": None}, config=file, environ=environ)
    assert (loaded.prefix, loaded.nats.port, loaded.nats.partitions, loaded.log.level) == ("flag", 2, 4, "error")


def test_the_environment_may_name_the_file_but_a_named_one_wins(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f'prefix = "{name}"\n')
    environ = {"SPAZIO_CONFIG": str(tmp_path / "a")}
    assert settings.load(environ=environ).prefix == "a"
    assert settings.load(config=tmp_path / "b", environ=environ).prefix == "b"


def test_an_empty_variable_says_nothing() -> None:
    assert settings.load(environ={"SPAZIO_NATS_PORT": "", "SPAZIO_CONFIG": ""}) == settings.load(environ={})


def is_path(annotation: Any) -> bool:
    return annotation is Path or any(map(is_path, get_args(annotation)))


@pytest.mark.parametrize("by_file", [False, True])
def test_an_empty_path_is_not_the_current_folder_but_none_or_refused(tmp_path: Path, by_file: bool) -> None:
    paths = [each for each in settings.options() if is_path(each[2].annotation)]
    assert len(paths) >= 23
    for section, field, info in paths:
        flat, file = settings.option_name(section, field), tmp_path / "spazio.toml"
        file.write_text(f'[{section}]\n{field} = ""\n' if by_file else "")
        flags, where = ({}, f"{file} [{section}] {field}") if by_file else ({flat: ""}, f"--{flat.replace('_', '-')}")
        if info.default is None:
            assert value(settings.load(flags, config=file, environ={}), flat) is None
            continue
        with pytest.raises(settings.SettingsError) as refused:
            settings.load(flags, config=file, environ={})
        assert str(refused.value).startswith(f"{where}: is empty; name a folder or file, or leave it out")


def test_a_file_gives_lists_and_types_as_toml_has_them(tmp_path: Path) -> None:
    file = tmp_path / "spazio.toml"
    file.write_text('[model]\nfeatures = ["cpu", "memory"]\n[smoothing]\npublish = false\n[sample]\nproc = "/p"\n')
    loaded = settings.load(config=file, environ={})
    assert loaded.model.features == ("cpu", "memory")
    assert loaded.smoothing.publish is False
    assert loaded.sample.proc == Path("/p")


def test_the_data_folder_follows_the_desktop_convention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/x")
    assert Data().dir == Path("/x/spazio")
    monkeypatch.setenv("XDG_DATA_HOME", "")
    monkeypatch.setenv("HOME", "/h")
    assert Data().dir == Path("/h/.local/share/spazio")


def test_the_parser_knows_short_names_a_file_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text('[log]\nlevel = "error"\n')
    monkeypatch.setenv("SPAZIO_HTTP_PORT", "3")
    loaded = option.parse("agent", "", ["--nats", "n:1", "--config", str(tmp_path / "file")])
    assert (loaded.nats.url, loaded.log.level, loaded.http.port) == ("n:1", "error", 3)


@pytest.mark.parametrize(("arguments", "status"), [(["--prot", "1"], 2), (["--nats-por", "1"], 2), (["--help-all"], 0)])
def test_the_parser_refuses_unknown_and_shortened_options_and_explains_all(
    arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as leaving:
        option.parse("agent", "Measure.", arguments)
    assert leaving.value.code == status
    if not status:
        text = capsys.readouterr().out
        assert all("--" + flat.replace("_", "-") in text for flat in FIELDS)


def test_help_lists_what_matters_and_names_the_option_that_lists_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        option.parse("agent", "Measure.", ["-h"])
    text = capsys.readouterr().out
    assert all(name in text for name in ("--nats", "--data-dir", "--help-all"))
    assert "--smoothing-form" not in text
