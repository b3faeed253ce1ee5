"""What the keys of `spazio top` do, and what a node's own screen shows."""

from typing import Any

from rich.console import Console

from schemas.messages.estimate import Availability, ClassRoom
from spazio.terminal.browser import keys
from spazio.terminal.browser import view as browse
from tests.support.extender.placement import report

NOW_US = 1_700_000_000_000_000


def row(node: str, available: float = 5, **changed: Any) -> Availability:
    return report(node, NOW_US, available).model_copy(update=changed)


def view(*rows: Availability, own: str = "") -> browse.View:
    made = browse.View(own=own)
    made.take(rows)
    return made


def screen(shown: browse.View, *, height: int = 24, silent_seconds: float | None = None) -> list[str]:
    console = Console(width=110)
    with console.capture() as capture:
        console.print(shown.page(NOW_US / 1e6 + 2, 110, height, silent_seconds=silent_seconds))
    return [line.rstrip() for line in capture.get().splitlines()]


def names(shown: browse.View, **how: Any) -> list[str]:
    return [line.split()[0] for line in screen(shown, **how) if line.lstrip().startswith("n")][1:]


def test_the_own_host_comes_first_among_any_number_of_nodes() -> None:
    shown = view(*(row(f"n{number:02}") for number in range(60)), own="n57")
    assert names(shown)[:2] == ["n57", "n00"]


def test_s_sorts_by_what_the_footer_says() -> None:
    shown = view(row("n1", 9, cpu_used=0.1), row("n2", 1, cpu_used=0.2), row("n3", 5, cpu_used=0.9))
    assert names(shown) == ["n1", "n2", "n3"]
    shown.press("s")
    shown.take(shown._shown)
    assert names(shown) == ["n2", "n3", "n1"]
    shown.press("s")
    shown.take(shown._shown)
    assert names(shown) == ["n3", "n2", "n1"]
    assert screen(shown)[-1].startswith("by cpu")


def test_slash_filters_by_name_and_class_and_escape_drops_the_filter() -> None:
    room = ClassRoom(available=1, lower=1, binding="cpu", pods=1, cpu=0.1, memory=0.1)
    rows = [row("n1"), row("n22"), row("n3", classes={"shop/22": room})]
    shown = view(*rows)
    for key in ("/", "q", "backspace", "2", "2", "enter"):
        shown.press(key)
    shown.take(rows)
    assert not shown.ended
    assert names(shown) == ["n22", "n3"]
    assert "2 of 3 nodes" in screen(shown)[0]
    shown.press("escape")
    shown.take(rows)
    assert len(names(shown)) == 3


def test_classes_have_the_totals_of_the_cluster_whatever_is_filtered() -> None:
    room = ClassRoom(available=1, lower=1, binding="cpu", pods=1, cpu=0.1, memory=0.1)
    free = {"cpu": 0.5, "memory": 0.5}
    rows = [row(f"n{number}", classes={"shop/web": room}, free=free) for number in range(3)]
    shown = view(*rows)
    (before,) = (line for line in screen(shown) if "shop/web" in line)
    for key in ("/", "n", "1", "enter"):
        shown.press(key)
    shown.take(rows)
    assert "1 of 3 nodes" in screen(shown)[0]
    (after,) = (line for line in screen(shown) if "shop/web" in line)
    assert after == before


def test_the_screen_follows_the_cursor_to_the_last_node() -> None:
    shown = view(*(row(f"n{number:02}") for number in range(60)))
    shown.press("G")
    assert names(shown)[-1] == "n59"
    shown.press("down")
    shown.press("k")
    shown.press("enter")
    assert screen(shown)[0] == "n58"


def test_enter_opens_a_node_with_its_interval_its_past_and_its_classes() -> None:
    shown = view(row("n1", 4.0, lower=2.0, cpu_used=0.5))
    shown.take([row("n1", 8.0, lower=3.0, upper=9.5, cpu_used=1.0, at_us=NOW_US + 1_000_000)])
    shown.press("enter")
    lines = screen(shown)
    assert lines[0] == "n1"
    assert "8.0 more pods fit, between 3.0 and 9.5" in lines[1]
    assert "s old" in lines[2]  # whole on a common terminal
    assert [line.split() for line in lines if line.startswith(("fits", "cpu"))] == [
        ["fits", "8.0", "▅█"],
        ["cpu", "100%", "▅█"],
    ]
    shown.press("escape")
    assert "1 of 1 node" in screen(shown)[0]


def test_a_lost_connection_is_reported_with_its_length() -> None:
    assert "disconnected for 12 s" in screen(view(row("n1")), silent_seconds=12.3)[-1]
    assert "disconnected" not in screen(view(row("n1")))[-1]


def test_no_node_at_all_is_a_screen_too_and_q_leaves() -> None:
    shown = view()
    for key in ("enter", "j", "G"):
        shown.press(key)
    assert any("no node has reported" in line for line in screen(shown))
    shown.press("q")
    assert shown.ended


def test_unknown_escape_sequences_are_no_keys() -> None:
    assert keys.split("\x1b[1;5Cq\x1b[5~\x1b") == ["q", "page up", "escape"]


def test_a_question_mark_shows_every_key_and_hides_them() -> None:
    shown = view(row("n1"))
    assert screen(shown)[-1].endswith("? keys")
    for close in ("?", "escape"):
        shown.press("?")
        lines = [line.split(maxsplit=1) for line in screen(shown)[1:-1]]
        assert [key for key, *_ in lines] == ["q", "/", "s", "j", "space", "g", "enter", "esc", "?"]
        assert "name, fits, cpu, memory, pods, age" in screen(shown)[3]
        assert names(shown) == []
        shown.press(close)
        assert names(shown) == ["n1"]
    for key in ("/", "?", "enter"):
        shown.press(key)
    assert (shown.wanted, shown.helping) == ("?", False)
