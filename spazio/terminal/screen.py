"""The screen that `spazio up` prints."""

import asyncio
import shutil
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from schemas.messages.estimate import Availability
from schemas.settings import Settings
from spazio import count
from spazio.terminal import clean, latest, retention

_FIRST_SECONDS = 8.0
_LEARNING_SECONDS = 60.0
_LEAST_SECONDS = 8.0  # by then the smoothing has forgotten the load of the agent's own start
_LOOKED_BACK_SECONDS = 5.0
_STEADY = 0.15  # relative: a number that still moves by more is not shown yet
_EXAMPLE = "SELECT time, node, available, binding FROM availability ORDER BY time DESC LIMIT 5"
_BINDING = {
    "cpu": "CPU time runs out first",
    "memory": "memory runs out first",
    "disk": "waiting for disks comes first",
    "pods": "the limit of pods comes first",
}
_NAMED = 3
_WORTH_A_WORD = 0.005
_ASKED_SECONDS = 2.0


def program() -> str:
    """Return how this user starts spazio: as this process was started, or by its name alone if it is on PATH."""
    started = sys.argv[0]
    if Path(started).name == "__main__.py":
        return f"{sys.executable} -m spazio"
    on_path = shutil.which("spazio")
    return "spazio" if on_path and Path(on_path).absolute() == Path(started).absolute() else started


def _address(addresses: dict[str, Any], name: str, rest: str) -> str:
    """Return an address and what follows it; of a service that has not started yet, that it has not."""
    return (
        f"{addresses[name]}{rest}"
        if addresses.get(name)
        else "has not started yet; its address will be in the file below"
    )


def show(addresses: dict[str, Any], settings: Settings) -> None:
    """Print all addresses."""
    spazio = program()
    folder = f" --data-dir {settings.data.dir}" if settings.data.dir != type(settings.data)().dir else ""
    lines = [
        "",
        "  spazio is measuring this machine.  Ctrl-C ends it; the next start goes on where it was.",
        "",
        f"  dashboard  {_address(addresses, 'dashboard', '   open it in a browser')}",
        f"  NATS       {settings.nats_shown}   subjects {settings.prefix}.>",
        *([f"  credential {addresses['credentials']}"] if addresses.get("credentials") else []),
        f"  metrics    {_address(addresses, 'http', '/metrics')}",
        f"  scheduler  {_address(addresses, 'extender', '   for kube-scheduler: deploy/kube-scheduler.yaml')}",
        f"  history    {addresses.get('history')}",
        f"  addresses  {settings.data.dir}/addresses.json",
        "",
        "  try next",
        f"    {spazio} top{folder}",
        f'    {spazio} sql{folder} "{_EXAMPLE}"',
        f"    {spazio} doctor{folder}",
        "",
    ]
    print("\n".join(lines), flush=True)


async def learn(settings: Settings) -> None:
    """Print how many pods fit on this node as soon as that is known."""
    seen = await _settled(settings)
    missing = f"no numbers after {_FIRST_SECONDS:.0f} s: `spazio doctor` shows what is missing"
    text = sentences(seen, settings) if seen else [missing]
    if warning := await asyncio.to_thread(retention.warning, settings, _ASKED_SECONDS):
        text.append(warning)
    print("".join(f"  {clean.text(line)}\n" for line in text), flush=True)


def sentences(seen: Sequence[Availability], settings: Settings) -> list[str]:
    """Return one node's newest rows as text: the lower bound, the expectation, and what counts as a pod.

    An expectation that still moves is shown as the range of these rows.
    """
    row, available = seen[-1], [each.available for each in seen]
    running = f"{count.of(row.pods, 'pod')} running"
    steady = max(available) - min(available) <= _STEADY * max(available)
    expected = f"{row.available:.1f}" if steady else f"still learning, {min(available):.0f} to {max(available):.0f}"
    first = f"{row.node}: at least {min(each.lower for each in seen):.0f} more pods fit, {expected} expected"
    return [
        f"{first}; {_BINDING.get(row.binding, row.binding)}; {running}.",
        f"A pod is {_unit(row, settings)}; it fits while CPU work takes at most {settings.slowdown:.1f} times as long "
        "as alone, and memory holds.",
    ]


def _unit(row: Availability, settings: Settings) -> str:
    """Return what counts as a pod."""
    if row.mix:
        named = sorted(row.mix.items(), key=lambda item: -item[1])
        parts = [f"{weight:.0%} {'of unknown class' if name == '-' else name}" for name, weight in named[:_NAMED]]
        rest = ", and others" if len(named) > _NAMED else ""
        if (unknown := 1 - sum(row.mix.values())) >= _WORTH_A_WORD:
            rest += f", {unknown:.0%} the mean pod of the cluster"
        return f"one of the mix that was started lately ({', '.join(parts)}{rest})"
    if row.pods == 0 and row.prior > 0.99:
        cores, memory = settings.estimate.pod_cores * 1000, settings.estimate.pod_memory_bytes >> 20
        return f"the reference pod of {cores:.0f}m CPU and {memory} MiB, since none was seen yet"
    return "the mean pod that was seen"


async def _settled(settings: Settings) -> list[Availability]:
    """Return this node's rows of the last seconds once they are steady, or after `_LEARNING_SECONDS`; none: empty."""
    loop, node = asyncio.get_running_loop(), settings.sample.node_name
    began = loop.time()
    _learning(0)
    seen: deque[tuple[float, Availability]] = deque()
    try:
        async with latest.follow(settings) as nodes:
            while (now := loop.time() - began) < (_LEARNING_SECONDS if seen else _FIRST_SECONDS):
                _learning(now)
                rows = [row for row in await nodes.read(1) if row.node == node]
                seen.extend((loop.time() - began, row) for row in rows)
                if rows and _steady(seen):
                    break
    except latest.Unreachable:
        pass
    _learning(None)
    return [row for _, row in seen]


def _steady(seen: deque[tuple[float, Availability]]) -> bool:
    """Tell whether availability was steady in the last seconds; drop older rows."""
    now = seen[-1][0]
    enough = now - seen[0][0] >= _LOOKED_BACK_SECONDS and now >= _LEAST_SECONDS
    while now - seen[0][0] > _LOOKED_BACK_SECONDS:
        seen.popleft()
    available = [row.available for _, row in seen]
    return enough and not seen[-1][1].churn and max(available) - min(available) <= _STEADY * max(available)


def _learning(seconds: float | None) -> None:
    """Show on a terminal how long the learning has taken, elsewhere that it has begun; None: it has ended."""
    if not sys.stdout.isatty():
        if seconds == 0:
            print(f"  learning how many more pods fit, for {_LEARNING_SECONDS:.0f} s at most", flush=True)
        return
    text = "" if seconds is None else f"  learning {seconds:.0f}/{_LEARNING_SECONDS:.0f} s"
    sys.stdout.write(f"\r{text:<30}" + ("\r" if seconds is None else ""))
    sys.stdout.flush()
