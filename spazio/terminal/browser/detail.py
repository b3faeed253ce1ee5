"""One node on the whole screen of `spazio top`: what fits with its interval, and the last minute as lines."""

from collections.abc import Sequence
from typing import NamedTuple

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from schemas.messages.estimate import Availability
from spazio import count
from spazio.terminal import clean, table

POINTS = 60
_BLOCKS = "▁▂▃▄▅▆▇█"
_HEAD_LINES = 13  # lines beside those of classes


class Point(NamedTuple):
    """What is drawn of one row; None: not known."""

    at_us: int
    available: float
    cpu: float | None
    saturation: float | None
    memory: float | None


def point(row: Availability) -> Point:
    """Return what is drawn of a row."""
    return Point(row.at_us, row.available, row.cpu_used, row.usage.get("cpu"), row.usage.get("memory"))


def spark(values: Sequence[float | None], highest: float) -> str:
    """Return one character a value, from 0 to `highest`; a blank where a value is not known.

    >>> spark([0, 0.5, None, 1], 1)
    '▁▅ █'
    """
    top = len(_BLOCKS) - 1
    return "".join(
        " " if value is None else _BLOCKS[min(top, max(0, round(value / highest * top + 0.01)))] for value in values
    )


def page(row: Availability, trail: Sequence[Point], now: float, width: int, height: int) -> RenderableType:
    """Return the screen of a node.

    Args:
        row: Its newest row.
        trail: Its last rows, oldest first, at least one.
        now: Seconds since the epoch.
        width: Columns of the terminal.
        height: Lines of the terminal.
    """
    head = Text(f"{clean.text(row.node)}", "bold", no_wrap=True, overflow="ellipsis")
    fits, more = (Text(no_wrap=True, overflow="ellipsis") for _ in range(2))
    fits.append(f"{row.available:.1f} more pods fit", "bold red" if row.available < 1 else "bold green")
    fits.append(
        f", between {row.lower:.1f} and {row.upper:.1f} (90 % each side); {clean.text(row.binding)} runs out first"
    )
    more.append(
        f"{count.of(row.pods, 'pod')} running; {row.prior:.0%} of the cost is assumed; {table.age(row, now):.1f} s old",
        "dim",
    )
    last = list(trail)[-max(10, width - 24) :]
    most = max((each.available for each in last), default=0.0) or 1.0
    lines = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
    for name, values, highest, text in (
        ("fits", [each.available for each in last], most, f"{row.available:.1f}"),
        ("cpu", [each.cpu for each in last], 1.0, _share(row.cpu_used)),
        ("saturation", [each.saturation for each in last], 1.0, _share(row.usage.get("cpu"))),
        ("memory", [each.memory for each in last], 1.0, _share(row.usage.get("memory"))),
    ):
        lines.add_row(name, Text(text, justify="right"), Text(spark(values, highest), "cyan", no_wrap=True))
    return Group(head, fits, more, Text(), lines, Text(), _classes(row, max(1, height - _HEAD_LINES)))


def _share(ratio: float | None) -> str:
    return "no data" if ratio is None else f"{ratio:.0%}"


def _classes(row: Availability, most: int) -> RenderableType:
    if not row.classes:
        return Text("no workload class is known here", "dim")
    made = Table("class", "fits", "at least", "binds", "pods", box=box.SIMPLE_HEAD, pad_edge=False)
    ordered = sorted(row.classes.items(), key=lambda item: (-item[1].pods, item[0]))
    for name, room in ordered[:most]:
        cells = (
            clean.text(table.workload(name)),
            f"{room.available:.1f}",
            f"{room.lower:.0f}",
            clean.text(room.binding),
        )
        made.add_row(*map(Text, cells), f"{room.pods}")
    if len(ordered) > most:
        made.caption = f"{len(ordered) - most} more"
    return made
