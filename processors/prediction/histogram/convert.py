"""Histograms of Koordinator's buckets, which are ours, as those of the Vertical Pod Autoscaler (VPA), and back.

The buckets of both grow by 5 %, but begin elsewhere. The weight of a bucket goes to the one that holds the largest
values of it, so percentiles never become smaller, and larger by one bucket at most. Weights keep their relation to each
other, although both fade with half-lives of their own: only what comes from then on fades by the new one.
"""

import numpy as np

from processors.prediction.histogram import bucket, exchange, field, histogram
from processors.prediction.histogram.bucket import Options
from processors.prediction.histogram.exchange import Koordinator, Vpa

Lives = tuple[float, float]

VPA_LIVES: Lives = (bucket.VPA_CPU_HALF_LIFE_SECONDS, bucket.VPA_MEMORY_HALF_LIFE_SECONDS)


def to_vpa(model: Koordinator, lives: Lives) -> Vpa:
    """Return a model as a checkpoint of the VPA; how many samples it has is not known.

    Args:
        model: Histograms of one row.
        lives: Half-lives of its cpu and memory, seconds.
    """
    return Vpa(
        cpu=_faded(_moved(model.cpu, bucket.KOORDINATOR_CPU, bucket.VPA_CPU), lives[0], VPA_LIVES[0]),
        memory=_faded(_moved(model.memory, bucket.KOORDINATOR_MEMORY, bucket.VPA_MEMORY), lives[1], VPA_LIVES[1]),
        updated=model.updated,
        first_sample=float("nan"),
        last_sample=model.updated,
        samples=0,
    )


def of_vpa(uid: str, checkpoint: Vpa, lives: Lives) -> Koordinator:
    """Return a checkpoint of the VPA as a model with this UID; `lives` as for `to_vpa`."""
    return Koordinator(
        uid=uid,
        cpu=_faded(_moved(checkpoint.cpu, bucket.VPA_CPU, bucket.KOORDINATOR_CPU), VPA_LIVES[0], lives[0]),
        memory=_faded(_moved(checkpoint.memory, bucket.VPA_MEMORY, bucket.KOORDINATOR_MEMORY), VPA_LIVES[1], lives[1]),
        updated=checkpoint.updated,
    )


def read_vpa(uid: str, document: object, lives: Lives) -> Koordinator:
    """Return the model of a VerticalPodAutoscalerCheckpoint, or of its status alone.

    Raises:
        ValueError: As `exchange.read_vpa`.
    """
    status = document.get("status") if isinstance(document, dict) and "status" in document else document
    return of_vpa(uid, exchange.read_vpa(status), lives)


def write_vpa(model: Koordinator, lives: Lives) -> dict[str, object]:
    """Return a VerticalPodAutoscalerCheckpoint without names, which are its user's."""
    status = exchange.write_vpa(to_vpa(model, lives))
    return {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscalerCheckpoint", "status": status}


def _moved(state: histogram.State, source: Options, target: Options) -> histogram.State:
    """Return a histogram of one row in other buckets."""
    largest = np.append(np.nextafter(source.starts[1:], 0.0), source.starts[-1])
    weights = np.zeros((1, target.count))
    np.add.at(weights[0], target.find(largest), state.weights[0].astype(np.float64))
    filled = np.flatnonzero(weights[0] > 0)
    low, high = (filled[0], filled[-1]) if len(filled) else (target.count - 1, 0)
    return state._replace(weights=weights, low=np.array([low], np.intp), high=np.array([high], np.intp))


def _faded(state: histogram.State, before: float, after: float) -> histogram.State:
    """Return a histogram of one row whose weights go on to fade with another half-life."""
    reference, newest = float(state.reference[0]), float(state.newest[0]) or 1.0
    if np.isnan(reference):
        return state
    newest_at = reference + before * np.log2(newest)
    year_one = field.YEAR_ONE_SECONDS
    anchor = year_one + np.floor((newest_at - year_one) / after) * after
    factor = 2.0 ** ((newest_at - anchor) / after) / newest
    return state._replace(
        weights=state.weights * factor,
        total=state.total * factor,
        reference=np.array([anchor]),
        newest=state.newest * factor,
    )
