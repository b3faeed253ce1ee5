"""Where the ledger begins: how many blocks agents published, of those that they should have."""

from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from bus.accounting.source import Source, Sources
from spazio import count
from spazio.terminal import clean

_SHOWN = 10


def content(sources: Sources) -> dict[str, Any]:
    """Return the sums and every node that lacks blocks, for `--json`."""
    return _sums(sources) | {"lacking": [each._asdict() | {"missing": each.missing} for each in _lacking(sources)]}


def table(sources: Sources) -> Table:
    """Return a line of sums, and one for each of the nodes that lack most."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("agents", "blocks due", "blocks stored", "missing"):
        made.add_column(heading, justify="left" if heading == "agents" else "right")
    sums, lacking = _sums(sources), _lacking(sources)
    seen, every = sums["looked_at"], sums["nodes"]
    title = count.of(every, "node") if seen == every else f"{seen} of {count.of(every, 'node')}"
    if sums["started_again"]:
        title += f"; {sums['started_again']:,} started again and are not counted"
    made.add_row(title, *(f"{sums[name]:,}" for name in ("due", "stored", "missing")))
    for each in lacking[:_SHOWN]:
        name = Text(clean.text(f"  {each.node} ({each.kind})"))
        made.add_row(name, f"{each.due:,}", f"{each.stored:,}", Text(f"{each.missing:,}", style="yellow"))
    if len(lacking) > _SHOWN:
        made.add_row(f"  {len(lacking) - _SHOWN:,} more")
    return made


def _sums(sources: Sources) -> dict[str, int]:
    counted = [each for each in sources.looked_at if each.due is not None]
    return {
        "nodes": sources.nodes,
        "looked_at": len({each.node for each in sources.looked_at}),
        "started_again": len({each.node for each in sources.looked_at if each.due is None}),
        "due": sum(each.due or 0 for each in counted),
        "stored": sum(each.stored for each in counted),
        "missing": sum(each.missing for each in counted),
    }


def _lacking(sources: Sources) -> list[Source]:
    return sorted((each for each in sources.looked_at if each.missing), key=lambda each: (-each.missing, each.node))
