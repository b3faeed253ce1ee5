"""The flight recorder: its numbers are those of the history, and its size has a bound."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sinks.dashboard import recorder
from sinks.dashboard.history import Unanswerable
from sinks.history import view
from sinks.period import Period
from spazio.service.composition.dashboard import Folder
from tests.support.dashboard import flight

SECOND_US = 1_000_000


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[Folder, Period]:
    begin_us = flight.record(tmp_path)
    return Folder(tmp_path), Period(begin_us, begin_us + flight.SECONDS * SECOND_US)


def read(recorded: tuple[Folder, Period], *nodes: str) -> dict[str, Any]:
    return recorder.read(*recorded, nodes, seconds=10)


@pytest.mark.slow
def test_each_second_of_each_node_is_that_of_the_history(recorded: tuple[Folder, Period], tmp_path: Path) -> None:
    content = read(recorded)
    assert (content["step"], content["found"], {node["node"] for node in content["nodes"]}) == (1, 2, {*flight.NODES})
    for node in content["nodes"]:
        with view.connect(tmp_path) as connection:
            statement = "SELECT lower, available, upper, churn::INTEGER FROM availability WHERE node = ? ORDER BY at_us"
            estimates = connection.execute(statement, [node["node"]]).fetchall()
            cpu = connection.execute(
                "SELECT avg(cpu_util) FROM samples WHERE node = ? GROUP BY at_us // 1000000 ORDER BY at_us // 1000000",
                [node["node"]],
            ).fetchall()
        shown = node["availability"]
        assert shown["steps"] == list(range(flight.SECONDS))
        assert [*zip(*(shown[name] for name in ("lower", "available", "upper", "churn")), strict=True)] == estimates
        assert [(value,) for value in node["samples"]["cpu"]] == cpu
        assert (node["rejects"]["steps"], node["rejects"]["score"]) == ([0], [0.75])
    assert len(content["events"]) == 2


@pytest.mark.slow
def test_a_file_of_one_node_has_no_other(recorded: tuple[Folder, Period]) -> None:
    content = read(recorded, flight.EVIL)
    assert [node["node"] for node in content["nodes"]] == [flight.EVIL]
    assert {event[1] for event in content["events"]} == {flight.EVIL}


@pytest.mark.slow
def test_steps_grow_until_the_values_are_few_enough(
    recorded: tuple[Folder, Period], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_VALUES", 300)
    content = read(recorded)
    values = [
        value
        for node in content["nodes"]
        for table in recorder._SERIES
        for column in node[table].values()
        for value in column
    ]
    assert 150 < len(values) <= 300
    assert content["step"] == 6
    assert min(content["nodes"][0]["availability"]["lower"]) == 5


@pytest.mark.slow
def test_days_of_one_node_have_no_more_steps_than_a_canvas_has_pixels(recorded: tuple[Folder, Period]) -> None:
    folder, period = recorded
    days = Period(period.to_us - 7 * 86_400 * SECOND_US, period.to_us)
    content = recorder.read(folder, days, flight.NODES[:1], seconds=10)
    assert content["step"] == 38
    assert (days.to_us - days.from_us) / SECOND_US / content["step"] <= 16_000


@pytest.mark.slow
def test_a_file_that_leaves_events_out_says_how_many_there_are(
    recorded: tuple[Folder, Period], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = read(recorded)
    assert (len(content["events"]), content["events_found"], content["decisions_found"]) == (2, 2, 0)
    monkeypatch.setattr(recorder, "_EVENTS", 1)
    content = read(recorded)
    assert (len(content["events"]), content["events_found"]) == (1, 2)


@pytest.mark.slow
def test_of_too_many_nodes_those_with_least_room_are_in_it(
    recorded: tuple[Folder, Period], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_NODES", 1)
    content = read(recorded)
    assert (content["found"], len(content["nodes"]), len(content["events"])) == (2, 1, 1)


@pytest.mark.slow
def test_a_period_without_nodes_has_no_file(recorded: tuple[Folder, Period]) -> None:
    with pytest.raises(Unanswerable, match="no node was measured"):
        recorder.read(recorded[0], Period(0, SECOND_US), seconds=10)


@pytest.mark.slow
def test_names_of_others_do_not_end_the_script_that_holds_them(recorded: tuple[Folder, Period]) -> None:
    content = read(recorded)
    text = recorder.page(content).decode()
    (held,) = re.findall(r'<script type="application/json" id="recording">(.*?)</script>', text)
    assert json.loads(held) == content
    assert "stolen'</script>" not in text
    assert text.count("<script") == text.count("</script>") == 3


@pytest.mark.slow
def test_the_file_names_no_address_to_load_from(recorded: tuple[Folder, Period]) -> None:
    text = recorder.page(read(recorded)).decode()
    assert re.findall(r"""(?:src|href)=["'](?!data:)[^"']*""", text) == []
    assert "import " not in re.sub(r"//.*", "", text[text.index('"use strict";\n') :])
