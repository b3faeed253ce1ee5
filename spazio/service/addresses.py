"""`addresses.json`: where everything of a running `spazio up` is, for people's scripts and for our own commands."""

import json
import os
from pathlib import Path
from typing import Any

from schemas.settings import Settings

FILE = "addresses.json"
SCHEDULER = "scheduler.json"  # note of the extender: where it answers kube-scheduler


def write(folder: Path, content: dict[str, Any]) -> None:
    """Replace the file at once, so that a reader never sees half of it."""
    hidden = folder / f".{FILE}"
    # For this user alone: the address of the server may hold a password.
    descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(json.dumps(content, indent=2) + "\n")
    hidden.replace(folder / FILE)


def read(settings: Settings) -> dict[str, Any]:
    """Return what a running `up` wrote; empty if there is none."""
    try:
        content = json.loads((settings.data.dir / FILE).read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def located(settings: Settings) -> Settings:
    """Return settings that reach the running pipeline: with the server that `up` chose, unless one is named."""
    url = read(settings).get("nats")
    if settings.nats.url or not isinstance(url, str):
        return settings
    return settings.model_copy(update={"nats": settings.nats.model_copy(update={"url": url})})
