"""The flight recorder: a period of the history as one HTML file that needs nothing else.

The file holds the series of all nodes in steps, events and decisions, the chart library and the script that draws them.
It loads nothing, and its content security policy lets only these scripts run. Steps are as long as the bounds on the
numbers of values and of steps make them: the file stays below some ten megabytes for any period and any cluster, and
the map of all nodes, in which a step is a pixel, within the width of a canvas.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from schemas.messages.base import RELEASE
from sinks.dashboard.history import History, Unanswerable
from sinks.period import Period

_STATIC = Path(__file__).with_name("static")
_SCRIPTS = (
    "base/format.js",
    "base/dom.js",
    "chart/chart.js",
    "chart/gap.js",
    "recorder.js",
)  # each may use those before it
_STYLES = ("vendor/uPlot.min.css", "style.css")
_MODULE = re.compile(r"^import .*;\n|^export (?=const|function|class|let)", re.MULTILINE)

_VALUES = 1_000_000
_STEPS = 16_000  # Chromium draws no canvas of more than 65,535 pixels, and Firefox none of more than 32,767
_NODES = 5000
_EVENTS = 2000
_DECISIONS = 500
_SECOND_US = 1_000_000

_NEWEST = (
    "SELECT node, min(lower) AS least, arg_max(binding, at_us) AS binding, count(*) OVER () AS found FROM availability"
)
_CONTAINERS = "SELECT at_us, node, event, coalesce(name, container_name, left(container, 12)), workload FROM containers"
_PLACED = "SELECT at_us, node, outcome, namespace || '/' || name, workload, feasible, nodes FROM decisions"
# Columns of the file, by table: what a step shows of the rows in it.
_SERIES: Mapping[str, Mapping[str, str]] = {
    "samples": {
        "cpu": "avg(cpu_util)",
        "cpu_most": "max(cpu_util)",
        "pressure": "avg(cpu_pressure)",
        "memory": "avg(memory_util)",
    },
    "availability": {
        "lower": "min(lower)",
        "available": "avg(available)",
        "upper": "max(upper)",
        "pods": "max(pods)",
        "churn": "max(churn::INTEGER)",
    },
    "rejects": {"score": "max(score)", "threshold": "max(threshold)"},
}
_COLUMNS = sum(map(len, _SERIES.values())) + len(_SERIES)


def read(history: History, period: Period, nodes: Sequence[str] = (), *, seconds: float) -> dict[str, Any]:
    """Return what a file shows of a period, as values of JSON.

    Args:
        history: Reads the history.
        period: Event time.
        nodes: Names of nodes; none: all, of more than 5,000 those with least room.
        seconds: Time that each query may take.

    Raises:
        Unanswerable: There is no history, no node in the period, or a query takes too long.
    """
    chosen = _condition(period, nodes)
    facts = history.query(
        f"{_NEWEST} WHERE {chosen} GROUP BY node ORDER BY least, node LIMIT {_NODES}",
        rows=_NODES,
        seconds=seconds,
    ).rows
    if not facts:
        raise Unanswerable("no node was measured in this time")
    if facts[0][3] > len(facts):
        chosen = _condition(period, [name for name, *_ in facts])
    span = period.to_us - period.from_us
    step_seconds = (-(-span * len(facts) * _COLUMNS // (_VALUES * _SECOND_US)), -(-span // (_STEPS * _SECOND_US)))
    step_us = _SECOND_US * max(1, *step_seconds)
    events, events_found = _newest(history, _CONTAINERS, chosen, _EVENTS, seconds)
    decisions, decisions_found = _newest(history, _PLACED, period.condition(), _DECISIONS, seconds)
    series = {table: _series(history, table, period, chosen, step_us, seconds) for table in _SERIES}
    return {
        "release": RELEASE,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "from": period.from_us / 1e6,
        "to": period.to_us / 1e6,
        "step": step_us / 1e6,
        "found": facts[0][3],
        "nodes": [
            {"node": name, "binding": binding, **{table: rows.get(name) for table, rows in series.items()}}
            for name, _, binding, _ in facts
        ],
        "events": events,
        "events_found": events_found,
        "decisions": decisions,
        "decisions_found": decisions_found,
    }


def page(content: Mapping[str, Any]) -> bytes:
    """Return the file of what `read` has returned."""
    library = (_STATIC / "vendor" / "uPlot.iife.min.js").read_text()
    modules = "\n".join(_MODULE.sub("", (_STATIC / name).read_text()) for name in _SCRIPTS)
    scripts = [library, f'"use strict";\n(() => {{\n{modules}\n}})();']
    styles = [(_STATIC / name).read_text() for name in _STYLES]
    policy = (
        f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    # Inside a script only `<` could end it, or begin a comment in it.
    data = json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    start = datetime.fromtimestamp(content["from"], UTC)
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>spazio, {start:%Y-%m-%d %H:%M} UTC</title>",
            '<link rel="icon" href="data:,">',
            *(f"<style>{text}</style>" for text in styles),
            "</head>\n<body>",
            '<main id="main"></main>',
            "<noscript>This page needs JavaScript; it loads none but its own.</noscript>",
            f'<script type="application/json" id="recording">{data}</script>',
            *(f"<script>{text}</script>" for text in scripts),
            "</body>\n</html>\n",
        ]
    ).encode()


def _condition(period: Period, nodes: Sequence[str]) -> str:
    listed = ", ".join("'" + name.replace("'", "''") + "'" for name in nodes)
    return f"{period.condition()} AND node IN ({listed})" if nodes else period.condition()


def _series(
    history: History, table: str, period: Period, condition: str, step_us: int, seconds: float
) -> dict[str, dict[str, Any]]:
    """Return, by node, the numbers of the steps that have rows, and a list of values for each column."""
    columns = _SERIES[table]
    computed = ", ".join(f"round({value}, 4) AS {name}" for name, value in columns.items())
    listed = ", ".join(f"list({name} ORDER BY step)" for name in columns)
    step = f"(at_us - {period.from_us}) // {step_us} AS step"
    steps = f"SELECT node, {step}, {computed} FROM {table} WHERE {condition} GROUP BY ALL"  # noqa: S608 # ours, or quoted
    statement = f"SELECT node, list(step ORDER BY step), {listed} FROM ({steps}) GROUP BY node"  # noqa: S608 # ours
    answer = history.query(statement, rows=_NODES, seconds=seconds)
    return {row[0]: dict(zip(("steps", *columns), row[1:], strict=True)) for row in answer.rows}


def _newest(
    history: History, statement: str, condition: str, most: int, seconds: float
) -> tuple[Sequence[Sequence[Any]], int]:
    """Return the newest rows, and the number of all."""
    every = f"{statement} WHERE {condition}"
    rows = history.query(f"{every} ORDER BY at_us DESC LIMIT {most}", rows=most, seconds=seconds).rows
    if len(rows) < most:
        return rows, len(rows)
    ((number,),) = history.query(f"SELECT count(*) FROM ({every})", rows=1, seconds=seconds).rows  # noqa: S608 # ours
    return rows, number


def _hashes(texts: Sequence[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)
