"""Every fault of settings is reported, at once and with its place."""

import pickle
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


def test_of_many_faults_the_first_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    file = tmp_path / "many"
    file.write_text("".join(f"key_{number} = 1\n" for number in range(500)))
    messages = faults(config=file, flags={"prefix": ""})
    assert messages[1:20] == [f"{file} key_{number}: there is no such setting" for number in range(19)]
    assert messages[-1] == "and 481 more"
    with pytest.raises(SettingsError, match=r"^a\nand 3 more$") as caught:
        raise SettingsError(["a"], 3)
    assert caught.value.count == 4


def test_a_name_or_value_of_any_length_is_shown_cut(tmp_path: Path) -> None:
    file = tmp_path / "long"
    file.write_text(f'{"k" * 9999} = 1\n[nats]\n{"f" * 9999} = 1\nport = "{"v" * 9999}"\n[{"s" * 9999}]\n')
    assert [len(each) < 300 for each in faults(config=file)] == [True] * 4


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("# \n" * 100_000, "has more than 262144 bytes"),
        (".".join("a" * 4000) + " = 1", "a key has more than 32 parts"),
        ("[" + " . ".join(["'a'", '"\\""'] * 2000) + "]", "a key has more than 32 parts"),
        ("a = " + "[" * 5000, "nested too deeply"),
    ],
    ids=["large", "long key", "long section", "deep"],
)
def test_a_file_that_would_take_long_is_refused_at_once(content: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(content)
    (message,) = faults(config=tmp_path / "file")
    assert reason in message


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


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://u:geheim@c:4318", "'https://…@c:4318'"),
        ("https://geheim@c:4318", "'https://…@c:4318'"),
        ("https://u:ge/h@geheim#eim@c:4318", "'https://…@c:4318'"),
        ("u:geheim@c:4318", "'…@c:4318'"),
        (f"https://u:{'geheim' * 99}@c:4318", "'https://…@c:4318'"),
        ("https://u:geheim@a,https://u:geheim@c", "'…@c'"),
        ("nonsense", "'nonsense'"),
    ],
)
def test_a_password_in_a_refused_address_is_not_shown_wherever_it_stands(
    tmp_path: Path, address: str, shown: str
) -> None:
    file = tmp_path / "spazio.toml"
    file.write_text(f'nats = "{address}"\n[otlp]\nendpoint = "{address}"\n[http]\nport = "{address}"\n')
    messages = faults(config=file)
    assert len(messages) == 3
    for message in messages:
        assert message.endswith(f"(is {shown})")
        assert "geheim" not in message


@pytest.mark.parametrize("count", [1, 20, 21, 50])
def test_faults_of_another_process_are_the_same_here(count: int) -> None:
    error = SettingsError([f"fault {number}" for number in range(count)], more=3)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.faults, copy.count) == (str(error), error.faults, count + 3)
