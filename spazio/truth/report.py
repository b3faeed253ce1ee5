"""Report of the experiment: shares of right estimates and valid bounds, by family and policy, as text and JSON."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from spazio import count
from spazio.truth.evaluation import Cell
from spazio.truth.recording import Recording, of_family

# Required shares of right estimates, by seconds after a change; and of valid bounds in each family.
WANTED = {10: 0.8, 30: 0.9}
BOUNDED = 0.9
_UNSTABLE = 10.0  # slowdown


def share(flags: Sequence[bool]) -> float | None:
    """Return the share of true flags; None: there are none."""
    return sum(flags) / len(flags) if flags else None


def figures(cells: Sequence[Cell]) -> dict[str, float | int | None]:
    """Return the shares and the mean error of some cells; None where there are no cells.

    `right`: within a pod or 15 % of all that fit; `over`: more than twice the truth and one; `bounded`: `lower` at or
    below the truth. `room_*`: the same for the class of the next pod.
    """
    with_room = [cell for cell in cells if cell.room is not None and cell.room_lower is not None]
    return {
        "cells": len(cells),
        "right": _rounded([cell.right() for cell in cells]),
        "over": _rounded([cell.available > 2 * cell.truth + 1 for cell in cells]),
        "bounded": _rounded([cell.bounded for cell in cells]),
        "bias": round(fmean(cell.available - cell.truth for cell in cells), 2) if cells else None,
        "room_right": _rounded([cell.right(cell.room) for cell in with_room]),
        "room_bounded": _rounded([(cell.room_lower or 0.0) <= cell.truth for cell in with_room]),
    }


def _rounded(flags: Sequence[bool]) -> float | None:
    part = share(flags)
    return None if part is None else round(part, 3)


def text(recording: Recording, forms: Mapping[str, Sequence[Cell]], policy: float) -> str:
    """Return the report as Markdown.

    Args:
        recording: The experiment.
        forms: Cells of each form of the estimator, the default first.
        policy: The slowdown of the tables by family and of single cells.
    """
    machine = recording.machine
    size = f"{count.of(machine['cpus'], 'CPU')}, {machine['memory_bytes'] / 2**30:.1f} GiB, Linux {machine['kernel']}"
    lines = [f"Measured on {size}; {count.of(len(recording.steps), 'step')}.", ""]
    lines += ["| form | s | after | cells | right | over | `lower` holds | bias, pods | class right | class bound |"]
    lines += ["|---|---|---|---|---|---|---|---|---|---|"]
    for form, cells in forms.items():
        for slowdown in sorted({cell.slowdown for cell in cells}):
            for seconds in sorted({cell.seconds for cell in cells}):
                chosen = [cell for cell in cells if cell.slowdown == slowdown and cell.seconds == seconds]
                lines.append(_row(f"{form} | {slowdown:g} | {seconds:g} s", figures(chosen)))
    first = [cell for cell in next(iter(forms.values())) if cell.slowdown == policy]
    lines += ["", f"Wanted of the default form at s = {policy:g}:", "", *verdict(recording, first)]
    lines += ["", f"By family, s = {policy:g}:", ""]
    lines += ["| family | cells | right | over | `lower` holds | bias, pods | class right | class bound |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for family in dict.fromkeys(cell.family for cell in first):
        lines.append(_row(family, figures([cell for cell in first if cell.family == family])))
    lines += ["", f"Every cell, s = {policy:g}; a cross marks a number that is off, or a bound that does not hold:", ""]
    lines += ["| family | pods | after | truth | available | lower | class | class lower | |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for cell in first:
        room = "– | –" if cell.room is None else f"{cell.room:.1f} | {cell.room_lower:.0f}"
        marks = ("" if cell.right() else "✗ off ") + ("" if cell.bounded else "✗ bound")
        lines.append(
            f"| {cell.family} | {cell.pods} | {cell.seconds:g} s | {cell.truth:.1f} | {cell.available:.1f} "
            f"| {cell.lower:.0f} | {room} | {marks.strip()} |"
        )
    lines += ["", "Slowdown that was measured:", "", "| family | pods | slowdown |", "|---|---|---|"]
    for step in recording.steps:
        result = f"{step.fits:.1f} hold" if step.slowdown is None else f"{step.slowdown:.2f}"
        lines.append(f"| {step.family} | {step.pods} | {result} |")
    return "\n".join(lines) + "\n"


def verdict(recording: Recording, cells: Sequence[Cell]) -> list[str]:
    """Return what is wanted of the default form at the policy's slowdown, what was reached, and which families miss it.

    Args:
        recording: The experiment.
        cells: Cells of that form and slowdown.
    """
    rows = []  # what is wanted, whether it was measured, what was reached, whether that is enough, and what misses it
    for seconds, least in WANTED.items():
        marked = [cell for cell in cells if cell.seconds == seconds]
        reached = share([cell.right() for cell in marked])
        wanted = f"right {seconds} s after a change in {least:.0%} of cells"
        rows.append((wanted, bool(marked), _percent(reached), (reached or 0.0) >= least, _missing(marked, Cell.right)))
    over = [cell for cell in cells if cell.available > 2 * cell.truth + 1]
    rows.append(
        ("never over twice the truth and one", bool(cells), count.of(len(over), "cell"), not over, _named(over))
    )
    held = {name: fmean(cell.bounded for cell in group) for name, group in _by_family(cells).items()}
    short = [name for name, part in held.items() if part < BOUNDED]
    wanted = f"`lower` holds in {BOUNDED:.0%} of cells of every family"
    rows.append((wanted, bool(held), _percent(min(held.values(), default=None)), not short, ", ".join(short)))
    shaky = unstable(recording, cells)
    rows.append(
        (
            "no family unstable at the number that `lower` allows",
            any(step.family in held and step.slowdown is not None for step in recording.steps),
            count.of(len(shaky), "family", "families"),
            not shaky,
            ", ".join(shaky),
        )
    )
    lines = ["| wanted | reached | | missed by |", "|---|---|---|---|"]
    for wanted, measured, value, ok, names in rows:
        mark = "✓" if ok else "✗"
        lines.append(f"| {wanted} | {value if measured else 'not measured'} | {mark if measured else ''} | {names} |")
    return lines


def unstable(recording: Recording, cells: Sequence[Cell]) -> list[str]:
    """Return the families in which a number of pods that `lower` had allowed was slowed down by more than ten times."""
    allowed: dict[str, float] = {}
    for cell in cells:
        allowed[cell.family] = max(allowed.get(cell.family, 0.0), cell.pods + cell.lower if cell.lower else 0.0)
    return [
        name
        for name, steps in of_family(recording.steps).items()
        if any((step.slowdown or 0) > _UNSTABLE and step.pods <= allowed.get(name, 0.0) for step in steps)
    ]


def _by_family(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.family, []).append(cell)
    return groups


def _missing(cells: Sequence[Cell], holds: Callable[[Cell], bool]) -> str:
    return _named([cell for cell in cells if not holds(cell)])


def _named(cells: Sequence[Cell]) -> str:
    return ", ".join(f"{name} ({len(group)})" for name, group in _by_family(cells).items())


def _row(head: str, values: Mapping[str, float | int | None]) -> str:
    shares = [_percent(values[name]) for name in ("right", "over", "bounded", "room_right", "room_bounded")]
    bias = "–" if values["bias"] is None else f"{values['bias']:+.1f}"
    return " | ".join([f"| {head}", str(values["cells"]), *shares[:3], bias, *shares[3:]]) + " |"


def _percent(part: float | None) -> str:
    return "–" if part is None else f"{part:.0%}"


def document(recording: Recording, forms: Mapping[str, Sequence[Cell]]) -> dict[str, Any]:
    """Return the report as JSON types."""
    return {
        "machine": recording.machine,
        "steps": [asdict(step) for step in recording.steps],
        "forms": {
            form: {"figures": figures(cells), "cells": [asdict(cell) for cell in cells]}
            for form, cells in forms.items()
        },
    }


def write(recording: Recording, forms: Mapping[str, Sequence[Cell]], policy: float, folder: Path) -> None:
    """Write `report.md` and `report.json`."""
    (folder / "report.md").write_text(text(recording, forms, policy))
    (folder / "report.json").write_text(json.dumps(document(recording, forms), indent=1) + "\n")
