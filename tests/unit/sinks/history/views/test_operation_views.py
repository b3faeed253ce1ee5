"""The views for operators, on rows worked by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from schemas import codec
from schemas.messages.placement import Promises, Spare, Trust
from schemas.messages.prediction import Accuracy, ForecastAccuracy
from spazio.command import sql
from tests.support.extender.placement import decision, report
from tests.support.history import ask, store
from tests.support.processors import telemetry
from tests.support.processors.predicted import forecast, prediction
from tests.support.processors.telemetry import NAMES, stored

pytestmark = pytest.mark.slow

START_US = 1_700_000_040_000_000  # a whole minute


def available(node: str, second: float, least: float, **changed: Any) -> tuple[str, bytes]:
    row = report(node, START_US + round(second * 1e6), least).model_copy(update=changed)
    return NAMES.part(0, "availability", node), codec.encode(row)


def test_episodes_of_full_machines_end_where_reports_say_less_or_stop(tmp_path: Path) -> None:
    full = [("a", second, 1.0 + second / 100, 0.98) for second in (0, 4, 8, 16, 40)]
    full += [("c", second, 2.0, 1.0) for second in (54, 58, 66)]
    rows = [*full, ("a", 12, 3.0, 0.5), ("b", 0, 0.0, 1.0), ("b", 2, 0.0, None), ("c", 62, 9.0, 0.1)]
    folder = store(tmp_path, [available(node, at, room, cpu_used=used) for node, at, room, used in rows])
    result = ask(folder, "SELECT * EXCLUDE (time, until) FROM saturation_episodes ORDER BY node, time")
    assert result[:3] == [("a", 8.0, 3, 1.0, 0.98), ("a", 0.0, 1, 1.16, 0.98), ("a", 0.0, 1, 1.4, 0.98)]
    assert result[3:] == [("b", 0.0, 1, 0.0, 1.0), ("c", 4.0, 2, 2.0, 1.0), ("c", 0.0, 1, 2.0, 1.0)]


def test_the_room_of_the_cluster_adds_up_whole_pods_of_each_node_by_the_minute(tmp_path: Path) -> None:
    rows = [available("a", 0, 4.9), available("a", 4, 4.5), available("b", 1, 0.5), available("b", 61, 2.5)]
    folder = store(tmp_path, rows)
    result = (
        "SELECT nodes, available, least_lower, full_nodes, bound_cpu, bound_memory FROM cluster_room ORDER BY minute"
    )
    assert ask(folder, result) == [(2, 4.0, 5.0, 1, 2, 0), (1, 2.0, 2.5, 0, 1, 0)]


def test_accuracy_is_of_the_newest_prediction_of_each_node_weighed_by_what_has_settled(tmp_path: Path) -> None:
    def made(node: str, at_us: int, violations: float, settled: float) -> tuple[str, bytes]:
        accuracy = {"max": Accuracy(violations=violations, severity=0.0, savings=0.5, settled=settled)}
        message = prediction(node=node, at_us=START_US + at_us, accuracy=accuracy)
        return NAMES.node("prediction", node), codec.encode(message)

    rows = [made("a", 1, 1.0, 100), made("a", 2, 0.1, 10), made("b", 3, 0.4, 20), made("c", 4, 1, 0)]
    gone = made("gone", -86_400_000_000, 1.0, 1000)  # counts no more
    folder = store(tmp_path, [gone, *rows, available("a", -3600, 1.0)])
    ((nodes, settled, violations, savings),) = ask(
        folder, "SELECT nodes, settled, violations, savings FROM prediction_accuracy WHERE model = 'max'"
    )
    assert (nodes, settled, savings) == (3, 30.0, 0.5)
    assert violations == pytest.approx(0.3)


def test_accuracy_of_forecasts_is_that_of_the_newest_one_of_each_workload_that_has_any(tmp_path: Path) -> None:
    def made(workload: str, at_us: int, **violations: float) -> tuple[str, bytes]:
        accuracy = {
            model: ForecastAccuracy(violations=share, severity=0.1, overprovision=0.2, settled=4.0)
            for model, share in violations.items()
        }
        message = forecast(workload=workload, at_us=START_US + at_us, accuracy=accuracy or None)
        return NAMES.of("forecast", message.namespace, workload), codec.encode(message)

    folder = store(
        tmp_path, [made("w", 1, linear=0.9, last=0.9), made("w", 2, linear=0.25, last=0.5), made("w", 3), made("v", 4)]
    )
    result = "SELECT workload, model, chosen, violations, settled FROM forecast_accuracy ORDER BY ALL"
    assert ask(folder, result) == [("w", "last", False, 0.5, 4.0), ("w", "linear", True, 0.25, 4.0)]


def test_the_ledger_states_by_week_how_often_the_scheduler_broke_the_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 4 pods of shop 1 broke it: by Wilson's formula, 4.6 to 69.9 %; pods that were not bound do not count."""

    def made(number: int, namespace: str = "shop", **changed: Any) -> tuple[str, bytes]:
        fields = {"pod": f"p{number}", "at_us": START_US + number, "namespace": namespace, "mode": "shadow"} | changed
        message = decision(START_US).model_copy(update={"outcome": "placed", "node": "a", "breaks": [], **fields})
        return f"spazio.decision.{namespace}.p{number}", codec.encode(message)

    bound = [made(1, bound="a"), made(2, bound="b"), made(3, bound="b", node=None, outcome="rejected")]
    rows = [*bound, made(4, bound="c", breaks=["full"]), made(5, bound=None, breaks=None), made(6, "web", bound="a")]
    rows += [made(7, mode="argmax"), made(8, bound="a", outcome="passed")]
    folder = store(tmp_path, rows)
    result = ask(folder, "SELECT * EXCLUDE (week) FROM ledger ORDER BY namespace")
    assert [row[:6] for row in result] == [("shop", 4, 1, 1, 1, 0.25), ("web", 1, 1, 0, 0, 0.0)]
    assert result[0][6:] == pytest.approx((0.0456, 0.6994), abs=1e-4)
    assert result[1][6:] == pytest.approx((0.0, 0.7935), abs=1e-4)
    assert sql.ledger(folder, form="json") == 0
    assert [row["namespace"] for row in json.loads(capsys.readouterr().out)] == ["shop", "web"]


def trust(minute: int, *promises: Promises, measured: float = 3.0, replica: str = "e-1") -> tuple[str, bytes]:
    message = Trust(
        replica=replica,
        at_us=START_US + minute * 60_000_000,
        mode="shadow",
        risk=0.1,
        nodes=10,
        cores=40.0,
        price=2.0,
        measured=Spare(nodes=measured, cores=4 * measured, price=measured / 5),
        requested=Spare(nodes=1.0, cores=4.0, price=0.2),
        promises=list(promises),
    )
    return f"spazio.trust.{replica}", codec.encode(message)


def promised(settled: int, broken: int, *, promoted: bool = False, namespace: str = "shop") -> Promises:
    return Promises(
        namespace=namespace, settled=settled, broken=broken, loose=1, evidence=9, against=0, promoted=promoted
    )


def test_promises_add_up_by_week_and_namespace_and_those_of_other_replicas_are_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """4 of shop, 1 of them broken: by Wilson's formula, 4.6 to 69.9 %; web had room left each time."""
    first = [trust(0, promised(1, 0), promised(0, 0, namespace="web")), trust(1, promised(1, 1))]
    second = [trust(0, promised(1, 0), replica="e-2"), trust(70, promised(2, 0, promoted=True), replica="e-2")]
    folder = store(tmp_path, [*first, *second])
    shop, web = ask(folder, "SELECT * EXCLUDE (week) FROM promises ORDER BY namespace")
    assert (shop[0], shop[-1]) == ("shop", True)
    assert shop[1:-1] == pytest.approx((4, 1, 3, 0.25, 0.0456, 0.6994, 0.1), abs=1e-4)
    assert web == ("web", 0, 0, 1, None, None, None, 0.1, False)
    assert sql.ledger(folder, "promises", form="json") == 0
    assert [each["settled"] for each in json.loads(capsys.readouterr().out)] == [4, 0]


def test_savings_are_what_measured_room_leaves_more_than_requests_do_by_the_hour(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two minutes of one hour and one of the next: means of 2.5 and 0.5 nodes."""
    folder = store(tmp_path, [trust(0, measured=3.0), trust(1, measured=4.0), trust(70, measured=1.5)])
    (row,) = ask(folder, "SELECT * EXCLUDE (week) FROM savings")
    nodes = (1.5, 0.6, 2.4)
    assert row[:2] == (2, 10.0)
    assert row[2:] == pytest.approx([*nodes, *(4 * saved for saved in nodes), *(saved / 5 for saved in nodes)])
    assert sql.ledger(folder, "savings", form="csv") == 0
    assert capsys.readouterr().out.startswith("week,hours,nodes,saved_nodes,")


@pytest.mark.parametrize("account", ["promises", "savings"])
def test_without_an_extender_its_accounts_say_how_to_begin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], account: sql.Account
) -> None:
    assert sql.ledger(store(tmp_path, [stored(telemetry.block("n", 0))]), account) == 1
    assert "run the extender and spazio watch" in capsys.readouterr().err


@pytest.mark.parametrize("live", [False, True])
def test_without_shadow_mode_the_ledger_says_how_to_begin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], live: bool
) -> None:
    decided = [("spazio.decision.shop.p", codec.encode(decision(START_US)))] if live else []
    assert sql.ledger(store(tmp_path, [stored(telemetry.block("n", 0)), *decided])) == 1
    assert "--extender-mode shadow" in capsys.readouterr().err


def test_churn_counts_events_by_node_and_minute(tmp_path: Path) -> None:
    events = [("created", 0.0), ("started", 1.0), ("started", 2.0), ("exited", 59.0), ("deleted", 61.0)]
    begin = START_US / 1e6 - telemetry.START
    rows = [stored(telemetry.event("a", begin + second, kind, workload=kind)) for kind, second in events]
    folder = store(tmp_path, rows)
    result = "SELECT created, started, exited, deleted, workloads FROM churn ORDER BY minute"
    assert ask(folder, result) == [(1, 2, 1, 0, 3), (0, 0, 0, 1, 1)]
