"""Settings that change while services run: which may, and what becomes of the others and of bad ones."""

import logging
import os
import signal
from pathlib import Path

import pytest

from schemas import live, settings
from schemas.live import Change, Live
from schemas.settings import Settings
from spazio import option
from spazio.service import reload
from tests.unit.schemas.test_settings import FIELDS, OTHER, text_of, value

CHANGEABLE = {settings.option_name(section, field) for section, field in live.changeable()}

# What the fold computes is made of these; a replay could not repeat a change between two messages.
FOLD = ("smoothing", "model", "estimate")


def loaded(**flags: str) -> Settings:
    return settings.load(flags, environ={})


def test_nothing_that_the_fold_is_made_of_may_change_while_services_run() -> None:
    assert not [flat for flat in CHANGEABLE if FIELDS[flat][0] in FOLD]
    assert CHANGEABLE


@pytest.mark.parametrize("ignored", [True, False])
def test_what_was_started_to_ignore_the_end_of_its_terminal_goes_on(
    monkeypatch: pytest.MonkeyPatch, ignored: bool
) -> None:
    has_terminal = True
    monkeypatch.setattr(reload, "_has_terminal", lambda: has_terminal)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        hangup = reload.Hangup()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert not hangup.closed()
    has_terminal = False
    assert hangup.closed() is not ignored


@pytest.mark.parametrize("flat", OTHER)
def test_a_change_of_one_setting_is_applied_or_named_as_waiting_and_changes_nothing_else(flat: str) -> None:
    now = Live(loaded())
    before, heard = now.current, list[Settings]()
    now.subscribe(heard.append)
    change = now.apply(loaded(**{flat: text_of(flat)}))
    if flat in CHANGEABLE:
        assert change == Change([flat], [])
        assert value(now.current, flat) == OTHER[flat]
        assert [each for each in FIELDS if value(now.current, each) != value(before, each)] == [flat]
        assert heard == [now.current]
    else:
        assert change == Change([], [flat])
        assert now.current == before
        assert heard == []


def test_a_setting_that_waits_is_named_again_each_time_and_one_that_is_in_force_is_not() -> None:
    now = Live(loaded())
    wanted = loaded(nats_port="1", history_flush_seconds="2")
    assert now.apply(wanted) == Change(["history_flush_seconds"], ["nats_port"])
    assert now.apply(wanted) == Change([], ["nats_port"])


def test_what_may_change_goes_through_a_file_and_the_rest_through_the_environment(tmp_path: Path) -> None:
    wanted = loaded(**{flat: text_of(flat) for flat in OTHER})
    path = reload.write(wanted, tmp_path / "run")
    environ = reload.fixed(wanted, path)
    assert settings.load(environ=environ) == wanted
    assert settings.unknown_environment(environ) == []
    reload.write(loaded(), tmp_path / "run")
    changed = settings.load(environ=environ)
    assert {flat for flat in FIELDS if value(changed, flat) != value(wanted, flat)} == CHANGEABLE


def test_what_a_backup_takes_has_neither_files_nor_addresses_nor_names_of_this_machine(tmp_path: Path) -> None:
    wanted = loaded(**{flat: text_of(flat) for flat in OTHER})
    file = tmp_path / "portable.toml"
    file.write_text(reload.portable(wanted))
    taken = settings.load(config=file, environ={})
    left = {flat for flat in FIELDS if value(taken, flat) != value(wanted, flat)}
    own = {flat for flat, other in OTHER.items() if any(isinstance(each, Path) for each in (other, *_parts(other)))}
    own |= {f"{section}_port" for section in ("nats", "http", "extender", "output_external", "dashboard")}
    own |= {f"{section}_host" for section in ("http", "extender", "output_external", "dashboard")}
    own |= {"nats_url", "otlp_endpoint", "sample_node", "kube_context", "process_replica"}
    assert left == own & FIELDS.keys()


def _parts(other: object) -> tuple[object, ...]:
    return other if isinstance(other, tuple) else ()


def test_the_settings_of_an_up_are_those_of_the_process_that_wrote_them(tmp_path: Path) -> None:
    reload.write(loaded(policy_slowdown="3", log_level="warning", http_port="9"), tmp_path)
    assert reload.of_up(tmp_path, os.getpid()) == '[policy]\nslowdown = "3.0"\n'
    assert reload.of_up(tmp_path, os.getpid() + 1) is None
    assert reload.of_up(tmp_path / "none", os.getpid()) is None


def test_settings_are_read_again_from_the_options_and_the_file_of_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "spazio.toml"
    file.write_text('[log]\nlevel = "error"\n')
    monkeypatch.chdir(tmp_path)
    now = Live(option.parse("agent", "", ["--http-port", "3", "--config", "spazio.toml"]))
    monkeypatch.chdir("/")
    file.write_text('[log]\nlevel = "debug"\n[http]\nport = 4\n')
    assert reload.again(now) == Change(["log_level"], [])  # the option still wins over the file
    assert (now.current.log.level, now.current.http.port) == ("debug", 3)
    caplog.clear()
    assert reload.again(now) == Change([], [])
    assert not [record for record in caplog.records if record.levelname != "INFO"]


def test_settings_with_any_fault_are_refused_as_a_whole_with_all_faults(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "spazio.toml"
    file.write_text("")
    now = Live(option.parse("agent", "", ["--config", str(file)]))
    before = now.current
    file.write_text('[log]\nlevel = "debug"\nformt = "x"\n[history]\nflush_seconds = -1\n')
    with caplog.at_level(logging.ERROR):
        assert reload.again(now) is None
    assert now.current is before
    faults = getattr(caplog.records[-1], "faults")  # noqa: B009 # a field of the record
    assert len(faults) == 2
    assert "did you mean format?" in faults[0] + faults[1]
    file.unlink()
    assert reload.again(now) is None
