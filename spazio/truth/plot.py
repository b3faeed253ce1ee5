"""Plot of the experiment: estimates and the truth, by family.

Raises:
    RuntimeError: matplotlib is not installed; the message says how to install it.
"""

from collections.abc import Sequence
from pathlib import Path

from spazio.truth.evaluation import Cell

try:
    from matplotlib.figure import Figure
except ImportError as error:
    raise RuntimeError(
        "plots need matplotlib, which is not installed: pip install '.[plots]' in a checkout, "
        "or leave them out with --no-plots"
    ) from error

_COLUMNS = 5
_ESTIMATE, _BOUND, _TRUTH = "#1f4e9c", "#8fb3e8", "#d62728"


def draw(cells: Sequence[Cell], path: Path) -> None:
    """Draw pods that still fit against pods that run, at the last moment of each step."""
    last = max(cell.seconds for cell in cells)
    families = list(dict.fromkeys(cell.family for cell in cells))
    rows = -(-len(families) // _COLUMNS)
    figure = Figure(figsize=(3 * _COLUMNS, 2.5 * rows), layout="constrained")
    axes = figure.subplots(rows, _COLUMNS, squeeze=False)
    for index, panel in enumerate(axes.flat):
        if index >= len(families):
            panel.axis("off")
            continue
        chosen = [cell for cell in cells if cell.family == families[index] and cell.seconds == last]
        pods = [cell.pods for cell in chosen]
        panel.fill_between(
            pods, [cell.lower for cell in chosen], [cell.available for cell in chosen], color=_BOUND, alpha=0.5
        )
        panel.plot(
            pods,
            [cell.available for cell in chosen],
            color=_ESTIMATE,
            marker="o",
            ms=4,
            label="estimate and lower bound",
        )
        panel.plot(pods, [cell.truth for cell in chosen], color=_TRUTH, ls="--", marker="x", ms=5, label="measured")
        panel.set_title(families[index], fontsize=10)
        panel.set_ylim(bottom=0)
        panel.grid(visible=True, alpha=0.3)
    axes[0][0].legend(fontsize=8)
    figure.supxlabel("pods that run")
    figure.supylabel("pods that still fit")
    figure.suptitle(f"What fits: estimated and measured, {last:g} s after each change")
    figure.savefig(path, dpi=110)
