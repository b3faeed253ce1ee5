"""A history of a few nodes over a minute, for what shows it whole."""

import time
from pathlib import Path

from schemas.messages.base import Message
from schemas.subject import Names
from tests.support import history
from tests.support.dashboard.pages import rows
from tests.support.processors import predicted, telemetry

EVIL = "</script><script>document.title='stolen'</script>"
NODES = ("n1", EVIL)
SECONDS = 60


def record(folder: Path) -> int:
    """Write the minute before now into a history, and return its first microsecond."""
    names = Names()
    begin_us = int(time.time() - SECONDS) * 1_000_000
    messages: list[tuple[str, Message]] = []
    for node, (row, cpu) in zip(NODES, zip(rows(2, names=NODES), (0.25, 0.75), strict=True), strict=True):
        for second in range(SECONDS):
            at_us = begin_us + second * 1_000_000
            block = telemetry.block(node, second, cpu_util=cpu, memory_util=0.5)
            messages.append((names.node("samples", node), block.model_copy(update={"at_us": at_us})))
            estimate = row.model_copy(update={"at_us": at_us, "lower": 5.0 + second % 3, "churn": second < 10})
            messages.append((names.node("availability", node), estimate))
        messages.append((names.node("reject", node), predicted.reject(node=node, at_us=begin_us)))
        started = telemetry.event(node, 0, "started", container=f"c-{node[:2]}", name=f"{EVIL}-of-{node[:2]}")
        messages.append((names.node("containers", node), started.model_copy(update={"at_us": begin_us})))
    history.record(folder, messages)
    return begin_us
