"""When a node's prediction is published, and its fields.

A change by more than a share since the last message is published at the next check, any other change once a minute.
What has not changed is published now and then, so that silence means that no process predicts.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction import peaks
from processors.prediction.scoring import accuracy
from processors.prediction.tier import group
from schemas.messages.prediction import FORMULAS, GROUPS
from schemas.sections.prediction import PEAK_MODELS, Predict

Array = NDArray[np.float64]
Times = NDArray[np.int64]

RESOURCES = ("cpu", "memory")
REASONS = ("report", "change", "force")
_NOT = -1
_SLACK_SECONDS = 0.5  # blocks come a little early or late
_LEAST_SAVINGS = -1e6  # of a limit that is next to nothing
_BYTES, _CORES, _SHARES = 0, 4, 6  # digits that mean something


class State(NamedTuple):
    """Last message of each node: when (0: none yet), and the numbers by which a change is measured."""

    published_us: Times
    published: Array


class ReportFields(NamedTuple):
    """Fields of a message beside the result, per node.

    Attributes:
        at_us: (nodes,) time of the last sample.
        capacity: (nodes, resources) that pods may have.
        violation: (nodes,) probability that the chosen model states; NaN: it states none.
        accuracy: How predictions have held.
        windows: (nodes,) samples of the histograms so far.
    """

    at_us: Times
    capacity: Array
    violation: Array
    accuracy: accuracy.Summary
    windows: Times


def init(nodes: int) -> State:
    """Return the state of nodes without a message."""
    return State(np.zeros(nodes, dtype=np.int64), np.full((nodes, 8), np.nan))


def measures(result: peaks.Result, settings: Predict) -> Array:
    """Return the numbers (nodes, 8) by which a change is measured: the chosen peaks, and what they leave."""
    chosen = result.peaks[:, :, PEAK_MODELS.index(settings.model)]
    lent = result.mid[:, FORMULAS.index(settings.formula)]
    return np.concatenate((chosen[:, group.NODE], chosen[:, group.PROD], result.reclaimable, lent), axis=1)


def update(
    state: State, news: Array, at_us: Times, is_predicted: NDArray[np.bool_], settings: Predict
) -> tuple[State, NDArray[np.int64]]:
    """Decide which nodes' predictions to publish.

    Args:
        state: The last messages.
        news: (nodes, 8) as `measures`.
        at_us: (nodes,) now, by their clocks; one that goes back publishes at once and counts from there.
        is_predicted: (nodes,) anything is predicted at all.
        settings: Times and the share.

    Returns:
        The state after it, and the index (nodes,) into `REASONS`, below 0: nothing is published.
    """
    waited = (at_us - state.published_us) / 1e6
    long = waited + _SLACK_SECONDS
    before, now = (np.where(np.isnan(numbers), -1.0, numbers) for numbers in (state.published, news))
    differs = (before != now).any(axis=1)
    by_much = (np.abs(now - before) > settings.change * np.abs(before)).any(axis=1)
    first = state.published_us == 0
    reason = np.full(len(waited), _NOT, dtype=np.int64)
    reason[long >= settings.force_seconds] = REASONS.index("force")
    reason[by_much | (waited < 0)] = REASONS.index("change")
    reason[(differs & (long >= settings.report_seconds)) | first] = REASONS.index("report")
    reason[~is_predicted] = _NOT
    due = reason >= 0
    return State(np.where(due, at_us, state.published_us), np.where(due[:, None], news, state.published)), reason


def fields(
    rows: Sequence[int],
    nodes: Sequence[str],
    result: peaks.Result,
    more: ReportFields,
    reason: Times,
    settings: Predict,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield index and fields of the `Prediction` of some nodes, where the chosen model predicts anything yet."""
    chosen = PEAK_MODELS.index(settings.model)
    rows = [row for row in rows if not np.isnan(result.peaks[row, group.NODE, chosen]).any()]
    by_group, assumed = _rounded(result.peaks[rows]), result.assumed[rows, chosen].tolist()
    pairs = {
        name: _rounded(getattr(result, name)[rows]).tolist()
        for name in ("requested", "unpredicted", "reclaimable", "batch")
    }
    lent, capacity = _rounded(result.mid[rows]).tolist(), _rounded(more.capacity[rows]).tolist()
    listed: list[Any] = by_group.tolist()
    is_known: list[Any] = np.logical_not(np.isnan(by_group).any(axis=3)).tolist()
    for index, row in enumerate(rows):
        violation = more.violation[row]
        yield (
            row,
            {
                "node": nodes[row],
                "at_us": int(more.at_us[row]),
                "horizon_seconds": float(settings.horizon_seconds),
                "model": settings.model,
                "peak": _resources(listed[index][group.NODE][chosen]),
                "assumed": [name for name, is_assumed in zip(RESOURCES, assumed[index], strict=True) if is_assumed]
                or None,
                "violation": None if np.isnan(violation) else float(np.round(violation, _SHARES)),
                "peaks": {
                    group: {
                        model: _resources(listed[index][number_of_group][number])
                        for number, model in enumerate(PEAK_MODELS)
                        if is_known[index][number_of_group][number]
                    }
                    for number_of_group, group in enumerate(GROUPS)
                    if any(is_known[index][number_of_group])
                },
                "capacity": _resources(capacity[index]),
                **{name: _resources(values[index]) for name, values in pairs.items()},
                "formula": settings.formula,
                "mid": {formula: _resources(lent[index][number]) for number, formula in enumerate(FORMULAS)},
                "accuracy": _accuracies(more.accuracy, row),
                "windows": int(more.windows[row]),
                "reason": REASONS[reason[row]],
            },
        )


def _resources(pair: Sequence[float]) -> dict[str, float]:
    return {"cpu": pair[0], "memory": pair[1]}


def _rounded(pairs: Array) -> Array:
    """Return cores and bytes (..., resources) rounded to what means something, 0 at least."""
    digits = np.stack([np.round(pairs[..., 0], _CORES), np.round(pairs[..., 1], _BYTES)], axis=-1)
    kept: Array = np.maximum(digits, 0.0)
    return kept


def _accuracies(summary: accuracy.Summary, row: int) -> dict[str, dict[str, float]] | None:
    """Return the figures by model, over both resources: the greater rate and severity, the mean savings."""
    figures = {}
    for number, model in enumerate(PEAK_MODELS):
        weight = summary.weight[row, number]
        if not (weight > 0).any():
            continue
        judged = weight > 0
        figures[model] = {
            "violations": float(np.round(summary.violation_rate[row, number, judged].max(), _SHARES)),
            "severity": float(np.round(summary.severity[row, number, judged].max(), _SHARES)),
            "savings": float(max(np.round(summary.savings[row, number, judged].mean(), _SHARES), _LEAST_SAVINGS)),
            "settled": float(np.round(weight.max(), _CORES)),
        }
    return figures or None
