"""`addresses.json`: the addresses of a running `spazio up`, for scripts and for other commands."""

import json
import os
from pathlib import Path
from typing import Any

from schemas.settings import Settings

FILE = "addresses.json"
SCHEDULER = "scheduler.json"  # the extender's address for kube-scheduler


def write(folder: Path, content: dict[str, Any]) -> None:
    """Replace the file atomically, so that a reader never sees half of it."""
    hidden = folder / f".{FILE}"
    # Readable only by this user: the server's address may contain a password.
    descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(json.dumps(content, indent=2) + "\n")
    hidden.replace(folder / FILE)


def read(settings: Settings) -> dict[str, Any]:
    """Return the contents of the file; empty if there is none."""
    try:
        content = json.loads((settings.data.dir / FILE).read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def located(settings: Settings) -> Settings:
    """Return settings with the server of the running `up`, unless they already have one."""
    url = read(settings).get("nats")
    if settings.nats.url or not isinstance(url, str):
        return settings
    return settings.model_copy(update={"nats": settings.nats.model_copy(update={"url": url})})
