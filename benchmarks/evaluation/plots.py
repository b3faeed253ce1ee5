"""Pictures of the evaluation: published beside simulated figures, and job against pod completion by scenario."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.evaluation.comparison import Row
from spazio.simulation.outcome import Interval

_COLOURS = {"kube": "#555555", "reference": "#d62728", "spazio": "#1f4e9c"}
_NAMES = {"kube": "kube-scheduler", "reference": "spazio's reference variant", "spazio": "spazio"}
_FIGURES = {"job_seconds": "job, seconds", "over_node_seconds": "node-seconds beyond the policy"}
Figures = Mapping[str, Interval]


def published(rows: Mapping[str, Sequence[Row]], path: Path) -> None:
    """Draw job completion over the number of pods (T2), and every error of all tables."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    jobs, errors = figure.subplots(1, 2)
    for scheduler, own in rows.items():
        _jobs(jobs, scheduler, own)
        places = range(len(own))
        errors.scatter(
            places, [100 * row.error for row in own], s=12, color=_COLOURS[scheduler], label=_NAMES[scheduler]
        )
    jobs.set(xlabel="pods", ylabel="job completion, seconds", title="T2: published (open) and simulated (filled)")
    errors.axhspan(-20, 20, color="#dddddd", zorder=0)
    errors.set(xlabel="row of the table below", ylabel="simulated above published, %", title="Error of each row")
    for panel in (jobs, errors):
        panel.grid(visible=True, alpha=0.3)
        panel.legend(fontsize=8)
    figure.savefig(path, dpi=80)


def _jobs(panel: Axes, scheduler: str, rows: Sequence[Row]) -> None:
    """Draw the jobs of one scheduler; of kube-scheduler's requests the best."""
    best = [row for row in rows if row.published.table == "T2" and row.published.case.request in {None, 0.2}]
    pods = [row.published.case.bpi for row in best]
    halves = [row.simulated.half or 0.0 for row in best]
    means = [row.simulated.mean for row in best]
    colour = _COLOURS[scheduler]
    panel.errorbar(pods, means, halves, marker="o", ms=4, capsize=2, lw=1, color=colour, label=_NAMES[scheduler])
    panel.plot(pods, [row.published.value for row in best], marker="o", mfc="none", ls=":", lw=1, color=colour)


def scenarios(results: Mapping[str, Mapping[str, Figures]], path: Path) -> None:
    """Draw job completion and node-seconds beyond the policy of every scheduler, scenario by scenario."""
    figure = Figure(figsize=(11, 1.9 * len(results)), layout="constrained")
    axes = figure.subplots(len(results), 2, squeeze=False)
    for (name, schedulers), panels in zip(results.items(), axes, strict=True):
        labels = [scheduler.replace("_", " ") for scheduler in schedulers]
        colours = [_COLOURS.get(scheduler, "#aaaaaa") for scheduler in schedulers]
        for panel, key in zip(panels, _FIGURES, strict=True):
            each = [figures[key] for figures in schedulers.values()]
            panel.barh(
                labels,
                [interval.mean for interval in each],
                xerr=[interval.half or 0.0 for interval in each],
                color=colours,
            )
            for row, interval in enumerate(each):
                if interval.lacking:
                    text = f"  {interval.lacking} of {interval.seeds + interval.lacking} seeds do not end"
                    end = 0.0 if math.isnan(interval.mean) else interval.mean + (interval.half or 0.0)
                    panel.annotate(text, (end, row), va="center", fontsize=7)
            panel.invert_yaxis()
            panel.tick_params(labelsize=7)
            panel.set_title(f"{name}: {_FIGURES[key]}", fontsize=8)
    figure.savefig(path, dpi=80)
