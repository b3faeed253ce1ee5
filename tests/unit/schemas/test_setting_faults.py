"""Every fault of settings is reported, at once and with its place."""

from pathlib import Path
from typing import Any

import pytest

from schemas import settings
from schemas.settings import SettingsError


def faults(**given: Any) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        settings.load(**{"environ": {}} | given)
    assert str(caught.value) == "\n".join(caught.value.faults)
    return caught.value.faults


def test_every_fault_is_reported_at_once_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "spazio.toml"
    file.write_text('prefx = "x"\n[nats]\nprot = 1\npartitions = 0\n[http]\nport = "high"\n')
    messages = faults(
        flags={"sample_interval_seconds": "0.3", "log_level": "loud"},
        config=file,
        environ={"SPAZIO_NATS_PORT": "70000", "SPAZIO_MODEL_FEATURES": "cpu,disc"},
    )
    expected = {
        f"{file} prefx: there is no such setting; did you mean prefix?",
        f"{file} [nats] prot: there is no such setting; did you mean port?",
        f"{file} [nats] partitions: ",
        f"{file} [http] port: ",
        "--sample-interval-seconds: does not divide one second",
        "--log-level: ",
        "SPAZIO_NATS_PORT: ",
        "SPAZIO_MODEL_FEATURES: are different names out of cpu, memory",
    }
    assert {start: sum(fault.startswith(start) for fault in messages) for start in expected} == dict.fromkeys(
        expected, 1
    )
    assert len(messages) == len(expected)
    assert [fault for fault in messages if "(is '70000')" in fault]


@pytest.mark.parametrize(
    "flags",
    [
        {"sample_interval_seconds": "0"},
        {"sample_interval_seconds": "nan"},
        {"data_min_free_bytes": "1.5"},
        {"nats_ping_interval_seconds": "inf"},
        {"nats_connect_timeout_seconds": "-1"},
        {"sample_node": "my node"},
        {"sample_node": 254 * "n"},
        {"prefix": "a.b"},
        {"prefix": ""},
        {"model_features": "cpu"},
        {"model_features": "cpu,memory,cpu"},
        {"model_features": ""},
        {"smoothing_publish": "perhaps"},
    ],
)
def test_a_value_that_cannot_be_is_one_fault_of_its_option(flags: dict[str, str]) -> None:
    (messages,) = faults(flags=flags)
    assert messages.startswith("--" + next(iter(flags)).replace("_", "-") + ": ")


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    assert "cannot be read" in faults(config=tmp_path / "none")[0]
    assert "cannot be read" in faults(config=tmp_path)[0]
    (tmp_path / "bad").write_text("a = = 1")
    assert "is not TOML" in faults(config=tmp_path / "bad")[0]
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert "is not TOML" in faults(config=tmp_path / "binary")[0]


def test_a_section_that_is_none_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("nats = 4222\n")
    (messages,) = faults(config=tmp_path / "file", environ={"SPAZIO_NATS_PORT": "1"})
    assert messages.startswith(f"{tmp_path / 'file'} nats: ")


def test_an_unknown_variable_is_a_warning_with_a_hint() -> None:
    environ = {"SPAZIO_NATS_PROT": "1", "SPAZIO_SERVICE_HOST": "10.0.0.1", "SPAZIO_CONFIG": "f", "OTHER": "x"}
    assert settings.load(environ=environ | {"SPAZIO_CONFIG": ""}) == settings.load(environ={})
    prot, service = settings.unknown_environment(environ)
    assert prot == "SPAZIO_NATS_PROT is no setting; did you mean SPAZIO_NATS_PORT?"
    assert service.startswith("SPAZIO_SERVICE_HOST is no setting")


def test_what_follows_from_other_settings() -> None:
    loaded = settings.load({"data_dir": "/d", "nats_port": "5", "sample_interval_seconds": "0.05"}, environ={})
    assert (loaded.nats_url, loaded.history_dir) == ("nats://127.0.0.1:5", Path("/d/history"))
    assert loaded.sample.samples == 20
    assert loaded.sample.node_name
    assert (loaded.smoothing_form, loaded.estimate_form) == ("running_median", "composed")
    carico = settings.load({"model_variant": "carico", "nats_url": "n:1", "sample_node": "x"}, environ={})
    assert (carico.smoothing_form, carico.estimate_form) == ("dynamic_ema", "kalman_dual")
    assert (carico.nats_url, carico.sample.node_name) == ("n:1", "x")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://me:secret@host:4222", "nats://host:4222"),
        ("me:secret@host", "host"),
        ("tls://host:4222", "tls://host:4222"),
    ],
)
def test_a_password_in_the_servers_address_is_never_shown(url: str, shown: str) -> None:
    assert settings.load({"nats_url": url}, environ={}).nats_shown == shown


@pytest.mark.parametrize(
    "url",
    [
        "nats://h:abc",
        "nats://h:99999",
        "nats://a:1,nats://b:2",
        "foo bar",
        "http://h",
        "nats://[half",
        "nats://u:geheim#x@h",
    ],
)
def test_an_address_that_is_none_is_a_fault_that_shows_no_password(url: str) -> None:
    with pytest.raises(settings.SettingsError) as caught:
        settings.load({"nats_url": url}, environ={})
    assert "is one address" in str(caught.value)
    assert "geheim" not in str(caught.value)
