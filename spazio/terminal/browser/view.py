"""What `spazio top` shows in a terminal and what its keys change; input and output are elsewhere."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from schemas.messages.estimate import Availability
from spazio.terminal import clean, table
from spazio.terminal.browser import detail

HELP = "q quit  / filter  s sort  j k move  enter open  esc back  ? keys"
_KEYS = (
    ("q", "quit; Ctrl-C, too"),
    ("/", "show only nodes with this in name, binding or classes; enter keeps the filter, esc drops it"),
    ("s", "sort by the next of {orders}"),
    ("j k", "next and previous node; the arrows, too"),
    ("space", "ten nodes on; page down and page up, too"),
    ("g G", "first and last node; home and end, too"),
    ("enter", "open the node under the cursor"),
    ("esc", "back: from a node or from these keys, else drop the filter"),
    ("?", "show these keys, and hide them"),
)
_PAGE_ROWS = 10
_FAR = 1_000_000
_STEPS = {
    "j": 1, "down": 1, "k": -1, "up": -1, "page down": _PAGE_ROWS, "page up": -_PAGE_ROWS, " ": _PAGE_ROWS,
    "g": -_FAR, "home": -_FAR, "G": _FAR, "end": _FAR,
}  # fmt: skip
# What comes first under each order; nodes of equal rank stay sorted by name.
_ORDERS: Mapping[str, Callable[[Availability], Any]] = {
    "name": lambda row: row.node,
    "fits": lambda row: row.available,
    "cpu": lambda row: -(row.cpu_used or 0.0),
    "memory": lambda row: -row.usage.get("memory", 0.0),
    "pods": lambda row: -row.pods,
    "age": lambda row: row.at_us,
}
_MOST_TRAILS = 1000  # nodes whose past is kept; about 13 MB


@dataclass
class View:
    """State of the screen.

    Attributes:
        own: Node of this host; it comes first under the order by name.
        order: How nodes are sorted, a key of `_ORDERS`.
        wanted: Only nodes are shown whose name, binding or classes contain this text.
        typing: Keys go into the filter.
        selected: Node under the cursor; empty: the first.
        opened: The selected node fills the screen.
        helping: The keys fill the screen.
        ended: The user wants to leave.
    """

    own: str = ""
    order: str = "name"
    wanted: str = ""
    typing: bool = False
    selected: str = ""
    opened: bool = False
    helping: bool = False
    ended: bool = False
    _rows: Sequence[Availability] = field(default_factory=list)
    _shown: list[Availability] = field(default_factory=list)
    _hidden: int = 0  # nodes that the filter leaves out
    _trails: dict[str, deque[detail.Point]] = field(default_factory=dict)

    def take(self, rows: Sequence[Availability]) -> None:
        """Take in the newest row of each node."""
        for row in rows:
            trail = self._trails.get(row.node)
            if trail is None:
                if len(self._trails) >= _MOST_TRAILS:
                    continue
                trail = self._trails[row.node] = deque(maxlen=detail.POINTS)
            if not trail or trail[-1].at_us < row.at_us:
                trail.append(detail.point(row))
        names = {row.node for row in rows}
        self._trails = {node: trail for node, trail in self._trails.items() if node in names}
        wanted = self.wanted.casefold()
        shown = [row for row in rows if wanted in _text(row)]
        self._rows, self._hidden = rows, len(rows) - len(shown)
        own_first = self.order == "name"
        key = _ORDERS[self.order]
        self._shown = sorted(shown, key=lambda row: (own_first and row.node != self.own, key(row), row.node))

    def press(self, key: str) -> None:
        """Change the view as a key says."""
        if self.typing:
            self._type(key)
        elif key == "q":
            self.ended = True
        elif key == "?" or (self.helping and key in ("escape", "backspace")):
            self.helping = not self.helping
        elif key in ("escape", "backspace"):
            self.opened, self.wanted = False, self.wanted if self.opened else ""
        elif key == "/":
            self.typing, self.opened = True, False
        elif key == "enter":
            self.opened = bool(self._shown)
        elif key == "s":
            orders = list(_ORDERS)
            self.order = orders[(orders.index(self.order) + 1) % len(orders)]
        elif key in _STEPS:
            self._move(_STEPS[key])

    def page(self, now: float, width: int, height: int, *, silent_seconds: float | None = None) -> RenderableType:
        """Return the screen.

        Args:
            now: Seconds since the epoch.
            width: Columns of the terminal.
            height: Lines of the terminal.
            silent_seconds: For how long there has been no connection; None: there is one.
        """
        footer = self._footer(silent_seconds)
        if self.helping:
            return Group(_keys(), footer)
        row = self._current()
        if self.opened and row is not None:
            trail = self._trails.get(row.node) or [detail.point(row)]
            return Group(detail.page(row, list(trail), now, width, height - 1), footer)
        selected = row.node if row else ""
        page = table.page(self._shown, now, width, height - 1, unread=self._hidden, selected=selected, whole=self._rows)
        return Group(page, footer)

    def _type(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.typing, self.wanted = False, self.wanted if key == "enter" else ""
        elif key == "backspace":
            self.wanted = self.wanted[:-1]
        elif len(key) == 1:
            self.wanted += key

    def _move(self, rows: int) -> None:
        if self._shown:
            row = self._current()
            at = self._shown.index(row) if row else 0
            self.selected = self._shown[min(max(at + rows, 0), len(self._shown) - 1)].node

    def _current(self) -> Availability | None:
        """Return the row under the cursor; None: no row is shown."""
        here = (row for row in self._shown if row.node == self.selected)
        return next(here, self._shown[0] if self._shown else None)

    def _footer(self, silent_seconds: float | None) -> Text:
        line = Text(no_wrap=True, overflow="ellipsis")
        if silent_seconds is not None:
            line.append(disconnected(silent_seconds)).append(" ")
        if self.typing:
            line.append(f"filter: {clean.text(self.wanted)}_  enter keeps it, esc drops it", "bold")
            return line
        filtered = f", only {clean.text(self.wanted)}" if self.wanted else ""
        line.append(f"by {self.order}{filtered}  ", "bold")
        line.append(HELP, "dim")
        return line


def disconnected(silent_seconds: float) -> Text:
    """Return what is shown beside rows that are no longer updated."""
    return Text(f" disconnected for {silent_seconds:.0f} s ", "bold white on red")


def _text(row: Availability) -> str:
    return "\n".join((row.node, row.binding, *(row.classes or ()))).casefold()


def _keys() -> RenderableType:
    lines = (Text(f"{key:>6}  {does.format(orders=', '.join(_ORDERS))}") for key, does in _KEYS)
    return Group(Text("keys of spazio top", "bold"), *lines)
