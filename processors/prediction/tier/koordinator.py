"""What production pods leave unused by Koordinator's node agent: its shipped predictors, to the last byte.

Two predictors look at the same pods. One takes each pod's own percentiles (cpu p95, memory p98), the other those of
whole classes on the node: the system, production, and pods of no class. Both add a safety margin, and the smaller
promise counts. Koordinator works in whole milli-cores and bytes and drops what is behind the point after each product;
so does this module within (`quantities`), while cores and bytes come in and go out. The first resource is cpu, the
second memory. Rules are those of koordinator's pkg/koordlet/prediction/peak_predictor.go.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction.tier import pod_sum, priority
from schemas.sections.prediction import Predict

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Quantities = NDArray[np.int64]

COLD_START_SECONDS = 86400.0
MARGIN_PERCENT = 10
_UNITS = np.array([1000.0, 1.0])  # milli-cores, bytes
_LARGEST = 2.0**50


class Pods(NamedTuple):
    """Pods of which usage was reported lately; each pod is listed once.

    Attributes:
        row: (pods,) node of each; below 0: of none.
        priority: (pods,) classes, as `priority.Priority`.
        request: (pods, resources); NaN and below 0 count as 0.
        percentile: (pods, resources) cpu p95 and memory p98, without margin; NaN: there is no model of the pod.
        cold: (pods,) too young to be predicted, see `is_cold`.
        ending: (pods,) being deleted, or over.
    """

    row: NDArray[np.intp]
    priority: NDArray[np.int8]
    request: Array
    percentile: Array
    cold: Mask
    ending: Mask


class Result(NamedTuple):
    """A prediction per node.

    Attributes:
        reclaimable: (rows, resources) what production pods asked for and will not use; NaN: not known.
        peak: (rows, resources) what will be used at most; NaN: not known. It may exceed what the node has.
    """

    reclaimable: Array
    peak: Array


def quantities(values: Array) -> Quantities:
    """Return cores and bytes (..., resources) as whole milli-cores and bytes, the nearest; NaN gives 0."""
    return _whole(np.rint(values * _UNITS))


def truncated(percentile: Array) -> Quantities:
    """Return a model's percentile (..., resources) as Koordinator reads it: the rest behind the point is dropped."""
    return _whole(np.trunc(percentile * _UNITS))


def values(quantity: Quantities) -> Array:
    """Return cores and bytes; the inverse of `quantities`."""
    amounts: Array = quantity / _UNITS
    return amounts


def scaled(quantity: Quantities, ratio: float | Array) -> Quantities:
    """Return the product with a ratio, in double precision, without what is behind the point."""
    return _whole(np.trunc(quantity.astype(np.float64) * ratio))


def margin_percent(settings: Predict) -> int:
    """Return the margin of the settings, Koordinator's own where they have none; it has whole percents."""
    return MARGIN_PERCENT if settings.margin is None else round(settings.margin * 100)


def is_cold(created_us: NDArray[np.int64], now_us: int, *, cold_start_seconds: float = COLD_START_SECONDS) -> Mask:
    """Tell which pods (pods,) are no older than the cold start; a pod from the future is cold."""
    cold: Mask = now_us - created_us <= cold_start_seconds * 1e6
    return cold


def by_pod(pods: Pods, allocatable: Array, *, margin_percent: int = MARGIN_PERCENT) -> Result:
    """Predict from each pod's own percentiles.

    A cold pod gives nothing back and its peak is its request, even while it ends; of the others, those that end do not
    count. A pod without a model is taken as a cold one.

    Args:
        pods: The pods.
        allocatable: (rows, resources) what the node has for pods; NaN: not known.
        margin_percent: Safety margin on top of percentiles; 0 or more.

    Raises:
        ValueError: The margin is below 0.
    """
    rows, prod = len(allocatable), priority.is_prod(pods.priority)
    running = prod & ~pods.cold & ~pods.ending
    failed = running & _unknown(pods.percentile)
    request = np.maximum(quantities(pods.request), 0)
    high = scaled(truncated(pods.percentile), _ratio(margin_percent))
    needed = _total(high, pods.row, rows, running & ~failed)
    spare = _total(np.maximum(request - high, 0), pods.row, rows, running & ~failed)
    unpredicted = _total(request, pods.row, rows, failed | (prod & pods.cold))
    return Result(_within(spare, needed, allocatable), values(needed + unpredicted))


def by_class(pods: Pods, percentile: Array, allocatable: Array, *, margin_percent: int = MARGIN_PERCENT) -> Result:
    """Predict from the percentiles of whole classes on each node; cold pods count as any other.

    Args:
        pods: The pods, for their requests.
        percentile: (rows, parts, resources) cpu p95 and memory p98 of the system, of production, and of pods of no
            class; NaN: there is no model, and the node's result is not known.
        allocatable: (rows, resources) as for `by_pod`.
        margin_percent: As for `by_pod`.
    """
    asked = priority.is_prod(pods.priority) & ~pods.ending
    request = _total(np.maximum(quantities(pods.request), 0), pods.row, len(allocatable), asked)
    needed = scaled(truncated(percentile).sum(axis=1), _ratio(margin_percent))
    unknown = _unknown(percentile.sum(axis=1))[:, np.newaxis]
    reclaimable = _within(np.maximum(request - needed, 0), needed, allocatable)
    return Result(np.where(unknown, np.nan, reclaimable), np.where(unknown, np.nan, values(needed)))


def predict(pods: Pods, percentile: Array, allocatable: Array, *, margin_percent: int = MARGIN_PERCENT) -> Result:
    """Return what ships: the smaller of both promises, the greater of both peaks; arguments as for `by_class`.

    A pod without a model is not counted among its class's requests, either. Where one predictor fails, so does this.
    """
    own = by_pod(pods, allocatable, margin_percent=margin_percent)
    failed = _unknown(pods.percentile) & ~pods.cold
    counted = pods._replace(ending=pods.ending | failed)
    of_classes = by_class(counted, percentile, allocatable, margin_percent=margin_percent)
    return Result(np.minimum(own.reclaimable, of_classes.reclaimable), np.maximum(own.peak, of_classes.peak))


def _ratio(margin_percent: int) -> float:
    if margin_percent < 0:
        raise ValueError(f"margin_percent is {margin_percent}: it must be 0 or more")
    # In percent, because (100 + 7)/100 and 1 + 0.07 are not the same float, and a byte may hang on it.
    return float(100 + margin_percent) / 100


def _unknown(percentile: Array) -> Mask:
    return np.asarray(np.isnan(percentile).any(axis=1))


def _total(quantity: Quantities, row: NDArray[np.intp], rows: int, counted: Mask) -> Quantities:
    return pod_sum.add(np.where(counted[:, np.newaxis], quantity, 0), row, rows)


def _within(spare: Quantities, needed: Quantities, allocatable: Array) -> Array:
    room = np.maximum(quantities(allocatable) - needed, 0)
    return np.where(_unknown(allocatable)[:, np.newaxis], np.nan, values(np.minimum(room, spare)))


def _whole(numbers: Array) -> Quantities:
    """Return integers; beyond any machine (infinite, too) counts as 2^50, so that sums of it stay integers."""
    filled = np.where(np.isnan(numbers), 0.0, numbers)
    return np.minimum(np.maximum(filled, -_LARGEST), _LARGEST).astype(np.int64)
