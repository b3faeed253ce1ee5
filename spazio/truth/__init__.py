"""`spazio truth`: how many pods of a workload fit on this machine, compared with the estimates of spazio.

For each family of workloads the experiment starts more and more pods, in control groups that the agent counts as
containers, while a separate pipeline measures the machine. The slowdown of their work shows how many of them fit under
a policy. The recorded telemetry, folded again under that policy, gives the estimates at each smaller number.
"""

import asyncio
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from schemas.settings import Settings
from spazio import INTERRUPTED, count, extra
from spazio.terminal import clean
from spazio.truth import evaluation, experiment, family, isolation, recording, report
from spazio.truth.evaluation import Cell
from spazio.truth.family import Family
from spazio.truth.recording import Recording, Step

SLOWDOWNS = (1.2, 1.5, 2.0, 3.0)
FORMS = ("composed", "least_squares")
_STEP_SECONDS = {True: 15.5, False: 30.5}
_SECONDS = (10.0, 15.0, 30.0)


def run(
    settings: Settings,
    out: Path,
    *,
    quick: bool,
    only: Sequence[str],
    again: bool,
    plots: bool,
    json_output: bool = False,
) -> int:
    """Run the experiment, or (`again`) evaluate the recording of an earlier one; return the exit status."""
    received: list[signal.Signals] = []
    try:  # faults are found before minutes of measuring
        _check(settings)
        draw = _drawing() if plots else None
        extra.require("truth")
        if again:
            recorded = recording.load(out)
        else:
            out.mkdir(parents=True, exist_ok=True)
            recorded = asyncio.run(_run(settings, out, received, quick=quick, only=only))
        forms = evaluate(recorded, settings, SLOWDOWNS)
        report.write(recorded, forms, settings.slowdown, out)
        shown = [cell for cell in forms[FORMS[0]] if cell.slowdown == settings.slowdown]
        if draw is not None and shown:
            draw(shown, out / "truth.png")
    except (OSError, ValueError, RuntimeError) as error:
        clean.complain(error, out)
        return 1 if isinstance(error, OSError | experiment.PodEnded) else 2
    except asyncio.CancelledError:
        return 128 + received[0]
    except KeyboardInterrupt:
        return INTERRUPTED
    if json_output:
        print(json.dumps(report.document(recorded, forms)))
        return 0
    print(report.text(recorded, forms, settings.slowdown))
    print(f"written to {out}: report.md, report.json" + (", truth.png" if plots and shown else ""))
    return 0


def _check(settings: Settings) -> None:
    """See that the estimates of all forms can be computed.

    Raises:
        ValueError: The variant of the model has not all of them.
    """
    if settings.model.variant == "carico":
        raise ValueError(
            f"the estimates of {' and '.join(FORMS)} are compared, and {FORMS[0]} does not go with the model variant "
            "carico, which has no policy of slowdown; leave --model-variant out"
        )


def _drawing() -> Callable[[Sequence[Cell], Path], None]:
    """Return what draws the plot.

    Raises:
        RuntimeError: A package is missing; the message says which.
    """
    from spazio.truth import plot

    return plot.draw


def evaluate(recorded: Recording, settings: Settings, slowdowns: Sequence[float]) -> dict[str, list[Cell]]:
    """Return the cells of each form under each policy, and under that of the settings."""
    forms: dict[str, list[Cell]] = {form: [] for form in FORMS}
    longest = max((step.end_us - step.begin_us) / 1e6 for step in recorded.steps)
    seconds = [since for since in _SECONDS if since < longest]
    for slowdown in sorted({*slowdowns, settings.slowdown}):
        for form in FORMS:
            policy = settings.policy.model_copy(update={"slowdown": slowdown})
            estimate = settings.estimate.model_copy(update={"form": form})
            estimates = evaluation.replay(
                recorded, settings.model_copy(update={"policy": policy, "estimate": estimate})
            )
            forms[form] += evaluation.cells(recorded, estimates, slowdown, seconds)
    return forms


async def _run(
    settings: Settings, out: Path, received: list[signal.Signals], *, quick: bool, only: Sequence[str]
) -> Recording:
    """Run the experiment; the first signal to end, which is added to `received`, cancels it.

    Further signals are ignored, since its pods and its pipeline end meanwhile.
    """
    loop, work = asyncio.get_running_loop(), asyncio.create_task(_record(settings, out, quick=quick, only=only))

    def end(sign: signal.Signals) -> None:
        received.append(sign)
        if len(received) == 1:
            work.cancel()

    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(sign, end, sign)
    return await work


def _names() -> list[str]:
    return [each.name for each in family.families(1, family.GIB, quick=False)]


def _families(settings: Settings, cpus: int, *, quick: bool, only: Sequence[str]) -> list[Family]:
    """Return the families to run.

    Raises:
        ValueError: There is no such family, or its pods need more memory than is free.
    """
    if unknown := set(only) - set(_names()):
        raise ValueError(f"{', '.join(sorted(unknown))}: no such family; families are {', '.join(_names())}")
    memory = int(experiment.FILLED * experiment.available_bytes(settings))
    every = family.families(cpus, memory, quick=quick and not only)
    families = [each for each in every if not only or each.name in only]
    left = max(0, memory - family.PIPELINE_BYTES)
    if large := [each for each in families if each.most_bytes > left]:
        most = max(each.most_bytes for each in large)
        raise ValueError(
            f"{', '.join(each.name for each in large)}: pods take up to {most / family.GIB:.1f} GiB, and "
            f"{left / family.GIB:.1f} GiB are free beside spazio; free memory, or name other families with --only"
        )
    return families


async def _record(settings: Settings, out: Path, *, quick: bool, only: Sequence[str]) -> Recording:
    machine = experiment.machine(settings)
    families = _families(settings, machine.cpus, quick=quick, only=only)
    step_seconds = _STEP_SECONDS[quick]
    steps = sum(len(each.counts) + len(each.before) for each in families)
    recorded = Recording(out, machine._asdict())
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    with (
        tempfile.TemporaryDirectory(prefix="spazio-truth-", ignore_cleanup_errors=True) as data,
        Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bar,
    ):
        own = isolation.isolated(settings, Path(data))
        task = bar.add_task(f"about {count.of(round(steps * step_seconds / 60), 'minute')}", total=steps)
        began = time.monotonic()
        async with contextlib.aclosing(experiment.record(own, families, out, step_seconds)) as recordings:
            async for recorded in recordings:
                shown = _shown(recorded.steps[-1])
                bar.update(task, advance=1, description=shown)
                if not console.is_terminal:
                    sys.stderr.write(f"{time.monotonic() - began:6.0f} s  {shown}\n")
    return recorded


def _shown(step: Step) -> str:
    shown = f"{step.fits:.1f} hold" if step.slowdown is None else f"slowdown {step.slowdown:.2f}"
    if step.disturbed is not None:
        shown += f", measured again: something else took {step.disturbed:.1f} CPUs"
    return f"{step.family} {step.pods}: {shown}"
