"""Histograms in the form of others: checkpoints of Koordinator and of the Vertical Pod Autoscaler (VPA).

Both keep a histogram as whole numbers, its fullest bucket 10000, with the total weight and the reference time. What
is less than a 20000th of the fullest bucket is not written, and percentiles may move by a bucket: `sparse` keeps all.
Koordinator puts two of them into a file for each pod (pkg/koordlet/prediction/checkpoint.go), the VPA into the status
of a VerticalPodAutoscalerCheckpoint. What cannot be read whole is refused. An unknown field is, too: it may say what
the others mean.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from processors.prediction.histogram import bucket, field, histogram
from processors.prediction.histogram.bucket import Options

_FULLEST = 10000
_MOST = 2**32 - 1
_VPA_VERSION = "v3"
_HISTOGRAM = {"referenceTimestamp", "bucketWeights", "totalWeight"}
_KOORDINATOR = {"UID", "CPU", "Memory", "LastUpdated"}
_VPA = {
    "lastUpdateTime",
    "version",
    "cpuHistogram",
    "memoryHistogram",
    "firstSampleStart",
    "lastSampleStart",
    "totalSamplesCount",
}


class Koordinator(NamedTuple):
    """A model of Koordinator's agent: `cpu` and `memory` of one row each, `updated` in seconds UTC, NaN: unknown."""

    uid: str
    cpu: histogram.State
    memory: histogram.State
    updated: float


class Vpa(NamedTuple):
    """A checkpoint of the VPA: `cpu` and `memory` of one row each; times in seconds UTC, NaN: unknown."""

    cpu: histogram.State
    memory: histogram.State
    updated: float
    first_sample: float
    last_sample: float
    samples: int


def write(state: histogram.State, row: int, *, options: Options, compat: bool = False) -> dict[str, Any]:
    """Return one row's histogram as JSON fields.

    Args:
        state: Histograms.
        row: Which one.
        options: Buckets.
        compat: Leave out what is below the lowest or above the highest bucket, as Koordinator does.

    Raises:
        ValueError: The reference is not a whole second; the form has no parts of seconds.
    """
    weights, reference = state.weights[row], float(state.reference[row])
    if reference != np.floor(reference) and not np.isnan(reference):
        raise ValueError(f"a reference of {reference} s is no whole second, and the form has no parts of one")
    if compat:
        bucket_number = np.arange(options.count)
        weights = np.where((bucket_number >= state.low[row]) & (bucket_number <= state.high[row]), weights, 0.0)
    fullest = weights.max()
    scaled = np.floor(weights * (_FULLEST / fullest) + 0.5).astype(np.int64) if fullest > 0.0 else weights
    return {
        "referenceTimestamp": field.stamp(reference),
        "bucketWeights": {str(bucket_number): int(scaled[bucket_number]) for bucket_number in np.flatnonzero(scaled)},
        "totalWeight": float(state.total[row]),
    }


def read(
    document: Any,
    *,
    options: Options,
    half_life_seconds: float | None,
    where: str = "histogram",
    compat: bool = False,
) -> histogram.State:
    """Return a histogram of one row from its JSON fields.

    When its newest sample came is not part of the form: until the next one comes, every bucket counts.

    Args:
        document: Parsed JSON.
        options: Buckets it was written with.
        half_life_seconds: Half-life it was written with; None: without decay, the reference is not looked at.
        where: What errors call it.
        compat: Take a histogram that is not empty by its total or by its buckets alone as empty, as Koordinator does.

    Raises:
        ValueError: What is wrong and where, for anything that is missing, cannot be, or would be lost.
    """
    fields = field.members(document, _HISTOGRAM, where)
    total = field.number(fields.get("totalWeight", 0), f"{where}.totalWeight")
    places, weights = _weights(fields.get("bucketWeights"), options, f"{where}.bucketWeights")
    reference = field.time(fields.get("referenceTimestamp"), f"{where}.referenceTimestamp")
    state = histogram.init(1, options)
    whole = int(weights.sum())
    if not compat and (whole > 0) != (total > 0.0):
        raise ValueError(f"{where} has a totalWeight of {total}, but bucketWeights that add up to {whole}")
    if half_life_seconds is not None:
        _check_reference(reference, half_life_seconds, whole, where)
        state.reference[0] = reference
    if whole > 0:
        state.weights[0, places] = weights * (total / whole)
        state.total[0] = total
        state.low[0], state.high[0] = places.min(), places.max()
    return state


def write_koordinator(model: Koordinator, *, compat: bool = False) -> dict[str, Any]:
    """Return the fields of Koordinator's file of one model."""
    return {
        "UID": model.uid,
        "CPU": write(model.cpu, 0, options=bucket.KOORDINATOR_CPU, compat=compat),
        "Memory": write(model.memory, 0, options=bucket.KOORDINATOR_MEMORY, compat=compat),
        "LastUpdated": field.stamp(model.updated),
    }


def read_koordinator(
    document: Any,
    *,
    cpu_half_life_seconds: float = bucket.KOORDINATOR_CPU_HALF_LIFE_SECONDS,
    memory_half_life_seconds: float = bucket.KOORDINATOR_MEMORY_HALF_LIFE_SECONDS,
    compat: bool = False,
) -> Koordinator:
    """Return the model of Koordinator's file, with the half-lives its agent was started with.

    Raises:
        ValueError: As of `read`.
    """
    fields = field.members(document, _KOORDINATOR, "checkpoint")
    uid = fields.get("UID")
    if not isinstance(uid, str) or not uid:
        raise ValueError(f"checkpoint.UID must be text, not {uid!r}")
    cpu, memory = bucket.KOORDINATOR_CPU, bucket.KOORDINATOR_MEMORY
    return Koordinator(
        uid=uid,
        cpu=_part(fields, "CPU", cpu, cpu_half_life_seconds, compat),
        memory=_part(fields, "Memory", memory, memory_half_life_seconds, compat),
        updated=field.time(fields.get("LastUpdated"), "checkpoint.LastUpdated"),
    )


def write_vpa(model: Vpa, *, compat: bool = False) -> dict[str, Any]:
    """Return the status of a VerticalPodAutoscalerCheckpoint of version v3."""
    return {
        "lastUpdateTime": field.stamp(model.updated),
        "version": _VPA_VERSION,
        "cpuHistogram": write(model.cpu, 0, options=bucket.VPA_CPU, compat=compat),
        "memoryHistogram": write(model.memory, 0, options=bucket.VPA_MEMORY, compat=compat),
        "firstSampleStart": field.stamp(model.first_sample),
        "lastSampleStart": field.stamp(model.last_sample),
        "totalSamplesCount": model.samples,
    }


def read_vpa(
    document: Any,
    *,
    cpu_half_life_seconds: float = bucket.VPA_CPU_HALF_LIFE_SECONDS,
    memory_half_life_seconds: float = bucket.VPA_MEMORY_HALF_LIFE_SECONDS,
    compat: bool = False,
) -> Vpa:
    """Return the checkpoint in the status of a VerticalPodAutoscalerCheckpoint.

    Raises:
        ValueError: As of `read`; or the version is not v3, whose buckets these are.
    """
    fields = field.members(document, _VPA, "checkpoint")
    if fields.get("version") != _VPA_VERSION:
        raise ValueError(f"checkpoint.version must be {_VPA_VERSION}, not {fields.get('version')!r}")
    return Vpa(
        cpu=_part(fields, "cpuHistogram", bucket.VPA_CPU, cpu_half_life_seconds, compat),
        memory=_part(fields, "memoryHistogram", bucket.VPA_MEMORY, memory_half_life_seconds, compat),
        updated=field.time(fields.get("lastUpdateTime"), "checkpoint.lastUpdateTime"),
        first_sample=field.time(fields.get("firstSampleStart"), "checkpoint.firstSampleStart"),
        last_sample=field.time(fields.get("lastSampleStart"), "checkpoint.lastSampleStart"),
        samples=field.whole(fields.get("totalSamplesCount", 0), 2**63 - 1, "checkpoint.totalSamplesCount"),
    )


def _part(fields: Mapping[str, Any], name: str, options: Options, half_life: float, compat: bool) -> histogram.State:
    where = f"checkpoint.{name}"
    return read(fields.get(name), options=options, half_life_seconds=half_life, where=where, compat=compat)


def _weights(document: Any, options: Options, where: str) -> tuple[histogram.Rows, histogram.Array]:
    entries = field.members({} if document is None else document, None, where)
    bucket_numbers = [_bucket_number(name, options.count, where) for name in entries]
    if len(set(bucket_numbers)) != len(bucket_numbers):
        raise ValueError(f"{where} has a bucket twice")
    weights = [field.whole(weight, _MOST, f"{where}[{name}]") for name, weight in entries.items()]
    return np.array(bucket_numbers, dtype=np.intp), np.array(weights, dtype=np.float64)


def _bucket_number(name: Any, count: int, where: str) -> int:
    if not re.fullmatch(r"-?\d{1,9}", str(name), re.ASCII):
        raise ValueError(f"{where} has the bucket {name!r:.60}, which is no number")
    bucket_number = int(name)
    if not 0 <= bucket_number < count:
        raise ValueError(f"{where} has the bucket {bucket_number}; there are 0 to {count - 1}")
    return bucket_number


def _check_reference(reference: float, half_life: float, whole: int, where: str) -> None:
    if np.isnan(reference):
        if whole:
            raise ValueError(f"{where} has weights without a referenceTimestamp, so their age is not known")
        return
    if (reference - field.YEAR_ONE_SECONDS) % half_life != 0.0:
        raise ValueError(
            f"{where}.referenceTimestamp {field.stamp(reference)} is no multiple of the half-life of {half_life} s: "
            "its weights were written with another half-life, and must be read with that"
        )
