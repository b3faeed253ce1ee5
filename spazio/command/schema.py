"""`spazio schema`: the contract as files for other tools, or as one JSON document on the screen."""

import json
import sys
from pathlib import Path
from typing import Any

from schemas import document
from spazio import exposition

_SETTINGS = """\
# Settings

Made by `make docs` from `schemas/settings.py`. The command line wins over the environment, which wins over the TOML
file that `--config` or `SPAZIO_CONFIG` names. `--nats` is short for `--nats-url`. A list is separated by commas on the
command line and in the environment. An empty variable counts as not set.

"""
_METRICS = """\
# Metrics

Made by `make docs` from `schemas/metric.py`: the columns of `samples` and `smoothed`. A value that is not known is
`null`, never 0.

"""
_PROMETHEUS = """
## Prometheus

What services serve at `/metrics`, beside the `process_` and `python_` metrics of every Python program. Gauges of nodes,
classes, predictions and workloads are those of `spazio sink metrics`; the others are of each service that does the
work. [The runbook](runbook.md) explains alerts on them.

"""


def documents() -> dict[str, Any]:
    """Return each document by its path in `docs/`: JSON as an object, markdown as text."""
    return {
        **{f"schemas/{name}": schema for name, schema in document.json_schemas().items()},
        "asyncapi.json": document.asyncapi(),
        "settings.md": _SETTINGS + document.settings_table(),
        "metrics.md": _METRICS + document.metrics_table() + _PROMETHEUS + exposition.table(),
    }


def files() -> dict[str, str]:
    """Return the text of each document by its path in `docs/`."""
    return {
        path: content if isinstance(content, str) else json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        for path, content in documents().items()
    }


def run(out: Path | None) -> int:
    """Write all documents into a folder, or print them as one JSON object; return the exit status."""
    if out is None:
        print(json.dumps(documents(), indent=2, ensure_ascii=False))
        return 0
    try:
        for path, text in files().items():
            target = out / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    except OSError as error:
        sys.stderr.write(f"spazio: {error.filename or out} cannot be written: {error.strerror}; name another --out\n")
        return 1
    return 0
