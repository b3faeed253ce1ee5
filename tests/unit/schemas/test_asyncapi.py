"""AsyncAPI has each subject of the contract; the tables have each setting and metric."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bus import layout
from schemas import document, live, metric, settings
from spazio.command import schema


def test_no_subject_of_the_contract_leaves_asyncapi() -> None:
    addresses = {channel["address"] for channel in document.asyncapi("lab")["channels"].values()}
    assert addresses >= {
        "lab.samples.{node}",
        "lab.containers.{node}",
        "lab.decision.{namespace}.{pod}",
        "$KV.LAB_PODS.{uid}",
        "$KV.LAB_RESERVATIONS.{node}",
        "lab.pods.{node}",
        "lab.edge.{node}",
        "lab.nodefacts.{node}",
        "lab.podfacts.{node}",
        "lab.smoothed.{node}",
        "lab.availability.{node}",
        "lab.model",
        "lab.model.partition.{partition}",
        "lab.subspace",
        "lab.subspace.partition.{partition}",
        "lab.model.local.{node}",
        "lab.prediction.{node}",
        "lab.reject.{node}",
        "lab.workloads.partition.{partition}",
        "lab.forecast.{namespace}.{workload}",
        "lab.market",
        "lab.cursor.{fold}",
        "lab.cache.cursor",
        "lab.dead.{subject}",
        "$KV.LAB_AVAILABILITY.{node}",
        "$KV.LAB_NODES.{node}",
    }


def test_each_subject_of_asyncapi_is_kept_by_one_stream() -> None:
    subjects = [each for config in layout.configs(settings.load(environ={})) for each in config.subjects or []]
    patterns = [re.escape(each).replace(r"\*", r"[^.]+").replace(">", ".+") for each in subjects]
    for channel in document.asyncapi()["channels"].values():
        example = re.sub(r"\{\w+\}", "7", channel["address"])
        assert len([each for each in patterns if re.fullmatch(each, example)]) == 1, example


def test_every_reference_of_asyncapi_leads_somewhere() -> None:
    content = document.asyncapi()
    references = re.findall(r'"\$ref": "([^"]+)"', json.dumps(content))
    assert len(references) > len(content["channels"])
    standing_alone = document.json_schemas()
    for reference in references:
        if reference.startswith("#/"):
            target: Any = content
            for part in reference[2:].split("/"):
                target = target[part]
        else:
            assert reference.removeprefix("./schemas/") in standing_alone


def test_asyncapi_tells_each_parameter_of_an_address_and_the_headers_of_a_dead_letter() -> None:
    content = document.asyncapi()
    for channel in content["channels"].values():
        assert set(re.findall(r"\{(\w+)\}", channel["address"])) == set(channel.get("parameters", {}))
    headers = content["components"]["messages"]["dead"]["headers"]["properties"]
    assert {"Spazio-Error", "Spazio-Consumer", "Spazio-Subject", "Spazio-Part", "Spazio-Cut"} <= headers.keys()
    assert "dead:withheld:" in headers["Nats-Msg-Id"]["description"]
    assert "dead.long" in headers["Spazio-Subject"]["description"]


def test_the_tables_have_one_whole_row_for_each_setting_and_metric() -> None:
    options = [settings.option_name(section, field) for section, field, _ in settings.options()]
    for table, columns, names in (
        (document.settings_table(), 6, ["--" + option.replace("_", "-") for option in options]),
        (document.metrics_table(), 5, list(metric.NAMES)),
    ):
        rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines()]
        assert {len(row) for row in rows} == {columns}
        assert all(cell.strip() for row in rows for cell in row)
        assert [row[0].strip(" `") for row in rows[2:]] == names


def test_the_settings_table_says_which_settings_may_change_while_services_run() -> None:
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in document.settings_table().splitlines()[2:]]
    messages = {row[0].strip(" `-").replace("-", "_"): row[4].strip() for row in rows}
    changeable = {settings.option_name(section, field) for section, field in live.changeable()}
    assert {flat for flat, when in messages.items() if when == "at once"} == changeable
    assert set(messages.values()) == {"at once", "restart"}


def test_the_settings_table_does_not_tell_whose_machine_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = document.settings_table()
    monkeypatch.setenv("XDG_DATA_HOME", "/elsewhere")
    monkeypatch.setenv("HOME", "/home/elsewhere")
    assert document.settings_table() == before


def test_without_a_folder_one_json_document_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert schema.run(None) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed.keys() == schema.files().keys()
    assert printed["asyncapi.json"] == document.asyncapi()


def test_a_folder_is_made_and_a_file_in_its_place_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert schema.run(tmp_path / "new") == 0
    files = schema.files()
    assert {path: (tmp_path / "new" / path).read_text() for path in files} == files
    (tmp_path / "file").touch()
    assert schema.run(tmp_path / "file") == 1
    assert "cannot be written" in capsys.readouterr().err
