"""What `spazio top` shows on terminals of all sizes, and says to programs."""

import json
from typing import Any

import pytest
from rich.console import Console

from schemas.messages.estimate import Availability, Blocks, ClassRoom
from spazio.command import top
from spazio.terminal import table

NOW = 1_700_000_100.0
LONG = "ip-10-0-0-7.eu-west-1.compute.internal"


def room(pods: int = 3, available: float = 2.7) -> ClassRoom:
    return ClassRoom(available=available, lower=1.5, binding="cpu", pods=pods, cpu=0.1, memory=0.02)


def row(node: str, **changed: Any) -> Availability:
    fields: dict[str, Any] = {
        "node": node,
        "at_us": int(NOW * 1e6) - 700_000,
        "seq": 1,
        "available": 12.34,
        "lower": 10.0,
        "upper": 14.2,
        "signal": 3.0,
        "cost": 0.1,
        "capacity": 1.0,
        "pods": 22,
        "binding": "memory",
        "mode": "signal",
        "churn": False,
        "prior": 0.02,
        "usage": {"cpu": 0.5, "memory": 0.73, "memory_pressure": 0.01, "io_pressure": 0.2},
        "explained": 1.0,
        "gap": 0.0,
        "free": {"cpu": 0.5, "memory": 0.27},
        "classes": {"shop/web": room(), "shop/checkout-service-with-a-long-name": room(1, 0.4)},
        "since_us": int(NOW * 1e6) - 3_000_000,
    }
    return Availability(**{**fields, **changed})


def shown(rows: list[Availability], width: int, height: int | None = None) -> list[str]:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(table.page(rows, NOW, width, height))
    return [line.rstrip() for line in capture.get().splitlines()]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 200])
def test_no_number_is_cut_however_long_the_names_are(width: int) -> None:
    lines = shown([row(LONG), row("short", churn=True, mode="capacity")], width)
    assert all(len(line) <= width for line in lines)
    cut = [line for line in lines if "…" in line.split("  ")[-1] or line.count("…") > 1]
    assert not cut
    first = next(line for line in lines if "ip-10-0-0" in line)
    assert "12.3  10-14  memory" in first
    assert first.endswith("0.7 s")
    assert any("≥2" in line and "cpu 100%" in line for line in lines)


def test_a_narrow_terminal_shows_which_node_it_is() -> None:
    lines = shown([row("node-0001"), row(LONG)], 40)
    assert any(line.split()[0] == "node-0001" for line in lines if line.strip())
    assert any(line.lstrip().startswith("ip-10-") for line in lines)
    assert any(line.lstrip().startswith("shop/") for line in lines)


def test_where_the_next_pod_is_most_likely_of_no_class_of_the_mix_the_mean_pod_is_named() -> None:
    lines = shown([row("n", mix={"dns": 0.09}), row("m", mix={"dns": 0.6})], 160)
    assert any("mean pod 91%" in line for line in lines)
    assert any("dns 60%" in line for line in lines)


def test_a_node_in_churn_shows_how_long_and_by_what_its_room_is_known() -> None:
    lines = shown([row("calm"), row("busy", churn=True, mode="capacity")], 120)
    calm, busy = (next(line for line in lines if line.lstrip().startswith(name)) for name in ("calm", "busy"))
    assert "no  signal" in calm
    assert "3 s  capacity" in busy


def test_a_node_whose_clock_is_not_believed_shows_how_far_it_is_off() -> None:
    lines = shown([row("good"), row("wrong", clock=-3600.2)], 80)
    good, wrong = (next(line for line in lines if line.lstrip().startswith(name)) for name in ("good", "wrong"))
    assert good.endswith("0.7 s")
    assert wrong.endswith("-3600 s off")


def test_classes_are_added_up_over_nodes_with_most_pods_first() -> None:
    lines = shown([row("a"), row("b", classes={"shop/web": room(5, 1.2)}), row("c", classes=None)], 160)
    web = next(number for number, line in enumerate(lines) if "shop/web" in line)
    assert lines[web].split() == ["shop/web", "3", "≥2", "8", "2", "10.0", "70%", "61%", "86%", "cpu", "100%"]
    assert "shop/checkout" in lines[web + 1]


def test_without_classes_there_is_one_table() -> None:
    assert not any("class" in line for line in shown([row("a", classes=None)], 100))
    assert any("no node has reported" in line for line in shown([], 100))


@pytest.mark.parametrize("height", [20, 24, 40, 60])
def test_a_screen_is_never_too_low_for_both_tables(height: int) -> None:
    many = [row(f"n{node}", classes={f"c{number}": room(number) for number in range(20)}) for node in range(60)]
    lines = shown(many, 80, height)
    assert len(lines) <= height
    assert sum("more; `spazio top --once` shows all" in line for line in lines) == 2
    assert any("c19" in line for line in lines)
    assert any("n0" in line for line in lines)


def test_the_title_says_how_many_of_the_nodes_were_read() -> None:
    assert any("3 of 3 nodes" in line for line in shown([row(name) for name in "abc"], 80))
    console = Console(width=80)
    with console.capture() as capture:
        console.print(table.page([row("a")], NOW, 80, unread=60))
    assert "1 of 61 nodes" in capture.get()


def test_a_screen_that_is_high_enough_shows_all() -> None:
    rows = [row(f"n{node}") for node in range(5)]
    assert not any("more;" in line for line in shown(rows, 80, 24))
    assert shown(rows, 80, 24) == shown(rows, 80)


def test_cpu_is_what_is_in_use_and_saturation_stands_beside_it() -> None:
    lines = shown([row("a", usage={"cpu": 0.76}, cpu_used=1.0)], 130)
    assert lines[2].split()[5:8] == ["cpu", "satur.", "memory"]
    (line,) = [line for line in lines if line.lstrip().startswith("a ")]
    assert line.index("100%") < line.index("76%")


def test_a_node_without_a_number_says_so() -> None:
    lines = shown([row("a", usage={"cpu": 1.0}, free={"cpu": 0.0, "memory": 0.0})], 80)
    assert any("no data" in line for line in lines)
    web = next(line for line in lines if "shop/web" in line)
    assert web.split()[-5:-2] == ["-", "-", "-"]


def test_programs_get_nodes_with_their_classes_and_the_totals() -> None:
    rows = [row("a", blocks=Blocks(doubled=1, late=2, missing=3, jumps=0)), row("b")]
    nodes, classes = json.loads(
        json.dumps([top.nodes_document(rows, NOW), top.classes_document(rows)], allow_nan=False)
    )
    assert [node["node"] for node in nodes] == ["a", "b"]
    assert nodes[0]["age_seconds"] == 0.7
    assert nodes[0]["blocks"] == {"doubled": 1, "late": 2, "missing": 3, "jumps": 0, "shared": None}
    assert (nodes[1]["blocks"], nodes[1]["clock"]) == (None, None)
    assert nodes[0]["classes"]["shop/web"]["available"] == 2.7
    assert classes[0]["class"] == "shop/web"
    assert classes[0]["available"] == 4
    assert classes[0]["fluid"] == pytest.approx(10)
