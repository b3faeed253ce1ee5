"""The tables of `spazio top`, fitted to the width and height of the terminal.

Names are truncated before numbers, and a narrow terminal omits the least important columns. If the screen is too low
for all rows, the last ones are omitted and the caption counts them.
"""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from processors.workload import pod_class
from schemas.messages.estimate import Availability
from sinks import cluster
from spazio import count
from spazio.terminal import clean

# Length of a bar by the least width of the terminal; a narrow one shows only the number.
_BARS = ((150, 10), (130, 5), (0, 0))
# Lines of a table besides its rows: title, blank, heading, rule, blank, caption; a heading of classes has two lines.
_NODE_LINES, _CLASS_LINES = 6, 7
# Classes that a low screen shows at least, however many nodes there are.
_LEAST_CLASSES = 4


Row = TypeVar("Row", Availability, cluster.Total)


class _Column(NamedTuple, Generic[Row]):
    """One column; `least` is the width of the terminal from which on it is shown."""

    heading: str
    cell: Callable[[Row], str | Text]
    left: bool = False
    least: int = 0


def page(
    rows: list[Availability],
    now: float,
    width: int = 120,
    height: int | None = None,
    *,
    unread: int = 0,
    selected: str = "",
    whole: Sequence[Availability] | None = None,
) -> Group:
    """Return both tables for a terminal.

    Args:
        rows: Newest row of each node.
        now: Seconds since the epoch.
        width: Columns of the terminal.
        height: Lines of the terminal; None: unlimited.
        unread: Nodes whose rows have not arrived yet.
        selected: Node under the cursor, which stays on the screen; empty: there is no cursor.
        whole: Rows of the whole cluster, to which the totals of classes belong; None: these.
    """
    totals = cluster.totals(rows if whole is None else whole)
    if height is None:
        return Group(nodes(rows, now, width, unread=unread), *([classes(totals, width)] if totals else []))
    if not totals:
        return Group(nodes(rows, now, width, max(1, height - _NODE_LINES), unread=unread, selected=selected))
    lines = height - _NODE_LINES - _CLASS_LINES
    shown = min(len(totals), max(_LEAST_CLASSES, lines - len(rows)))
    return Group(
        nodes(rows, now, width, max(1, lines - shown), unread=unread, selected=selected), classes(totals, width, shown)
    )


def nodes(
    rows: list[Availability],
    now: float,
    width: int,
    most: int | None = None,
    *,
    unread: int = 0,
    selected: str = "",
) -> Table:
    """Return the table of nodes with at most so many rows around the selected one; `unread` have not arrived yet."""
    bar = next(length for least, length in _BARS if width >= least)
    columns: list[_Column[Availability]] = [
        _Column("node", lambda row: _name(row.node), left=True),
        _Column("fits", lambda row: _fits(f"{row.available:.1f}", row.available)),
        _Column("90 %", lambda row: f"{row.lower:.0f}-{row.upper:.0f}"),
        _Column("binds", lambda row: _name(row.binding), left=True),
        _Column("of", _mix, left=True, least=140),
        _Column("cpu", lambda row: _bar(row.cpu_used, bar), least=70),
        _Column("satur.", lambda row: _bar(row.usage.get("cpu"), bar), least=100),
        _Column("memory", lambda row: _bar(row.usage.get("memory"), bar), least=70),
        _Column("press.", lambda row: _bar(_pressure(row), bar), least=110),
        _Column("pods", lambda row: f"{row.pods}", least=54),
        _Column("churn", lambda row: _churn(row, now), least=64),
        _Column("mode", lambda row: Text(row.mode, style="yellow" if row.mode == "capacity" else "dim"), True, 110),
        _Column("prior", lambda row: f"{row.prior:.0%}", least=90),
        _Column("age", lambda row: _age(row, now)),
    ]
    title = f"spazio: {len(rows)} of {count.of(len(rows) + unread, 'node')}"
    begin = _begin([row.node for row in rows], most, selected)
    shown = rows[begin:][:most]
    made = _table(title, columns, shown, width, [row.node for row in shown].index(selected) if selected else None)
    if not rows:
        made.caption = "no node has reported in the last half minute"
    elif most is not None and len(rows) > most:
        places = f"{begin + 1} to {begin + len(shown)}"
        made.caption = places if selected else f"{len(rows) - most} more; `spazio top --once` shows all"
    return made


def _begin(names: list[str], most: int | None, selected: str) -> int:
    """Return the first of at most so many rows, so that the selected one is in the middle as far as possible."""
    if most is None or not selected:
        return 0
    return max(0, min(names.index(selected) - most // 2, len(names) - most))


def classes(totals: list[cluster.Total], width: int, most: int | None = None) -> Table:
    """Return the table of workload classes over all nodes, with at most so many rows."""
    columns: list[_Column[cluster.Total]] = [
        _Column("class", lambda total: _name(workload(total.workload)), left=True),
        _Column("fits", lambda total: _fits(f"{total.available:.0f}", total.available)),
        _Column("90 %", lambda total: f"≥{total.lower:.0f}"),
        _Column("pods", lambda total: f"{total.pods}"),
        _Column("nodes", lambda total: f"{total.nodes}", least=90),
        _Column("fluid", lambda total: f"{total.fluid:.1f}", least=64),
        _Column("frag-\nmented", lambda total: _share(total.fragmentation), least=75),
        _Column("stranded\ncpu", lambda total: _share(total.stranded_cpu), least=75),
        _Column("stranded\nmemory", lambda total: _share(total.stranded_memory), least=75),
        _Column("binds", lambda total: _name(f"{total.binding} {_bound(total):.0%}"), left=True),
    ]
    made = _table("workload classes", columns, totals[:most], width)
    if most is not None and len(totals) > most:
        made.caption = f"{len(totals) - most} more; `spazio top --once` shows all"
    return made


def age(row: Availability, now: float) -> float:
    """Return how many seconds old a row is."""
    return round(max(0.0, now - row.at_us / 1e6), 3)


def _age(row: Availability, now: float) -> str | Text:
    """Return the age, or the error of the node's clock if it is off: then its times are unreliable."""
    if row.clock is None:
        return f"{age(row, now):.1f} s"
    return Text(f"{max(-999_999, min(999_999, row.clock)):+.0f} s off", style="red")


def _table(
    title: str, columns: list[_Column[Row]], rows: Sequence[Row], width: int, marked: int | None = None
) -> Table:
    made = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    shown = [column for column in columns if width >= column.least]
    for number, column in enumerate(shown):
        # Only the first column may shrink; its text does not wrap but ends in an ellipsis.
        made.add_column(column.heading, justify="left" if column.left else "right", no_wrap=number > 0)
    for number, row in enumerate(rows):
        made.add_row(*(column.cell(row) for column in shown), style="reverse" if number == marked else None)
    return made


def workload(name: str) -> str:
    """Return the name of a class as it is shown.

    >>> workload("shop/web"), workload("-")
    ('shop/web', 'unknown class')
    """
    return "unknown class" if name == pod_class.UNNAMED else name


def _name(text: str) -> Text:
    return Text(clean.text(text), no_wrap=True, overflow="ellipsis")


def _fits(text: str, available: float) -> Text:
    return Text(text, style="bold red" if available < 1 else "bold green")


def _mix(row: Availability) -> Text:
    """Return the most likely class of the next pod, and its probability."""
    if not row.mix:
        return Text("reference" if row.pods == 0 else "mean pod", style="dim")
    name, weight = max(row.mix.items(), key=lambda item: item[1])
    if (unknown := 1 - sum(row.mix.values())) > weight:  # what no class of the mix is
        return Text(f"mean pod {unknown:.0%}", style="dim")
    return _name(f"{workload(name)} {weight:.0%}")


def _churn(row: Availability, now: float) -> Text:
    """Return the time since the churn window opened, or since the binding resource changed within it."""
    if not row.churn:
        return Text("no", style="dim")
    return Text(f"{min(999.0, max(0.0, now - row.since_us / 1e6)):.0f} s", style="yellow")


def _pressure(row: Availability) -> float:
    return max(row.usage.get("memory_pressure", 0.0), row.usage.get("io_pressure", 0.0))


def _bar(ratio: float | None, length: int) -> Text:
    if ratio is None:
        return Text("no data", style="dim")
    full = round(ratio * length)
    style = "red" if ratio >= 0.9 else "yellow" if ratio >= 0.7 else "green"
    return Text.assemble(("━" * full, style), ("━" * (length - full), "dim"), (f" {ratio:4.0%}", style))


def _share(ratio: float | None) -> Text:
    """Return a lost share; None: nothing is free, so there is no share."""
    return Text("-", style="dim") if ratio is None else Text(f"{ratio:.0%}", style="yellow" if ratio >= 0.5 else "")


def _bound(total: cluster.Total) -> float:
    return max(total.bound.values())
