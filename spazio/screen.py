"""The one screen that `spazio up` prints."""

import asyncio
from typing import Any

from schemas.estimate import Availability
from schemas.settings import Settings
from spazio import live

_FIRST_SECONDS = 8.0
_EXAMPLE = "SELECT time, node, available, binding FROM availability ORDER BY time DESC LIMIT 5"


async def show(places: dict[str, Any], settings: Settings) -> None:
    """Print where everything is, and how many pods fit on this node as soon as that is known."""
    folder = f" --data-dir {settings.data.dir}" if settings.data.dir != type(settings.data)().dir else ""
    lines = [
        "",
        "  spazio is measuring this machine.  Ctrl-C ends it; the next start goes on where it was.",
        "",
        f"  NATS       {settings.nats_shown}   subjects {settings.prefix}.>",
        f"  metrics    {places.get('http')}/metrics",
        f"  scheduler  {places.get('extender')}   for kube-scheduler: deploy/kube-scheduler.yaml",
        f"  history    {places.get('history')}",
        f"  addresses  {settings.data.dir}/addresses.json",
        "",
        "  try next",
        f"    .venv/bin/spazio top{folder}",
        f'    .venv/bin/spazio sql{folder} "{_EXAMPLE}"',
        f"    .venv/bin/spazio doctor{folder}",
    ]
    print("\n".join(lines), flush=True)
    row = await _first(settings)
    missing = f"no numbers after {_FIRST_SECONDS:.0f} s: `spazio doctor` says what is missing"
    print(f"\n  {missing if row is None else sentence(row)}\n", flush=True)


def sentence(row: Availability) -> str:
    """Say one node's availability in words."""
    assumed = f"; {row.prior:.0%} of a pod's cost is assumed until pods are seen" if row.prior > 0.05 else ""
    return (
        f"{row.node}: {row.available:.1f} more pods fit (90 % sure of {row.lower:.1f}), "
        f"{row.binding} runs out first, {row.pods:.0f} running{assumed}"
    )


async def _first(settings: Settings) -> Availability | None:
    node = settings.sample.node_name
    try:
        async with asyncio.timeout(_FIRST_SECONDS), live.follow(settings) as nodes:
            while True:
                for row in await nodes.read(1):
                    if row.node == node:
                        return row
    except (TimeoutError, live.Unreachable):
        return None
