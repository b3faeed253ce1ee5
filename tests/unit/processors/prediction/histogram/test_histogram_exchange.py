"""Checkpoints of Koordinator and of the Vertical Pod Autoscaler: read, written, and refused when damaged."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.prediction.histogram import bucket, exchange, histogram
from processors.prediction.histogram.bucket import Options

HOUR = 3600
BEGAN = 1_234_567_890
WHOLE = bucket.linear(10, 1, 1e-15)
TENTHS = bucket.linear(1, 0.1, 1e-15)
CORES = bucket.KOORDINATOR_CPU
VPA = bucket.VPA_CPU

# A production checkpoint of the VPA, and one from kubernetes/autoscaler#9241; bucket: weight.
PRODUCTION = (
    "2:1 3:4 4:504 5:7507 6:10000 7:7139 8:4339 9:3155 10:3546 11:2243 12:1404 13:879 14:772 15:649 16:573 17:501 "
    "18:486 19:397 20:301 21:258 22:191 23:100 24:84 25:53 26:41 27:32 28:27 29:25 30:22 31:23 32:25 33:19 34:10 "
    "35:8 36:8 37:3 38:5 39:1 40:1 41:3 42:1 43:1"
)
REPORTED = "4:82 5:10000 6:1939 7:527 8:1181 9:960 10:170 43:90 44:165"

both = pytest.mark.parametrize("compat", [False, True])


def fill(samples: Sequence[tuple[float, float, float]], options: Options, half_life: float | None) -> histogram.State:
    state = histogram.init(1, options)
    for value, weight, at in samples:
        state = histogram.add(state, np.array([value]), weight, at, options=options, half_life_seconds=half_life)
    return state


def weights(text: str) -> dict[str, int]:
    return {bucket_index: int(weight) for bucket_index, weight in (pair.split(":") for pair in text.split())}


def document(total: float, result: dict[str, int]) -> dict[str, Any]:
    return {"referenceTimestamp": "2023-11-15T00:00:00Z", "bucketWeights": result, "totalWeight": total}


@both
def test_a_written_histogram_has_10000_in_its_fullest_bucket(compat: bool) -> None:
    state = fill([(float(i), float(i), BEGAN + (i - 1) * HOUR) for i in range(1, 5)], WHOLE, HOUR)
    assert exchange.write(state, 0, options=WHOLE, compat=compat) == {
        "referenceTimestamp": "2009-02-14T00:00:00Z",
        "bucketWeights": {"1": 313, "2": 1250, "3": 3750, "4": 10000},
        "totalWeight": 35.253872710265085,
    }


@both
@pytest.mark.parametrize(
    ("samples", "total", "written"),
    [
        ([(1, 1, 0), (2, 100000, 0)], 100001, {"2": 10000}),
        ([(1, 1, 0), (2, 10000, 0), (3, 50, 0)], 10051, {"1": 1, "2": 10000, "3": 50}),
        ([], 0, {}),
    ],
)
def test_what_is_next_to_nothing_is_not_written(
    samples: list[tuple[float, float, float]], total: float, written: dict[str, int], compat: bool
) -> None:
    result = exchange.write(fill(samples, WHOLE, None), 0, options=WHOLE, compat=compat)
    assert result == {"referenceTimestamp": None, "bucketWeights": written, "totalWeight": total}


@both
def test_a_sample_a_day_late_is_written_as_the_peers_write_it(compat: bool) -> None:
    state = fill([(4, 1, BEGAN), (8, 1, BEGAN - 24 * HOUR)], CORES, 12 * HOUR)
    result = exchange.write(state, 0, options=CORES, compat=compat)
    assert result["bucketWeights"] == {"45": 10000, "58": 2500}
    assert result["totalWeight"] == 1.2161698771826077


@both
def test_the_total_is_spread_over_the_buckets_read(compat: bool) -> None:
    result = document(6.0, {"0": 1, "1": 2})
    state = exchange.read(result, options=WHOLE, half_life_seconds=None, compat=compat)
    assert state.weights[0, :3].tolist() == [2, 4, 0]
    assert state.total[0] == 6


@both
@pytest.mark.parametrize(
    ("total", "text", "fractions", "expected"),
    [
        (
            2678.9068695782944,
            PRODUCTION,
            [0, 0.5, 0.9, 0.95, 0.99, 1],
            [
                0.031525,
                0.09549108875781244,
                0.2157856358822734,
                0.2813238467382167,
                0.44501998874273974,
                1.511430055903391,
            ],
        ),
        (
            15.107305755130483,
            REPORTED,
            [0.5, 0.9, 0.95, 0.98, 0.99],
            [0.06801912812499994, 0.11026564319570306, 0.1257789253554882, 0.14206787162326262, 1.597001558698561],
        ),
    ],
)
def test_checkpoints_from_production_read_as_their_own_code_reads_them(
    total: float, text: str, fractions: list[float], expected: list[float], compat: bool
) -> None:
    result = document(total, weights(text))
    state = exchange.read(result, options=VPA, half_life_seconds=24 * HOUR, compat=compat)
    assert histogram.percentile(state, fractions, options=VPA, compat=compat)[0].tolist() == expected
    assert exchange.write(state, 0, options=VPA, compat=compat) == result


def test_a_restored_histogram_never_reads_zero() -> None:
    """kubernetes/autoscaler#7726: the peers read 0, of which everything would be given away."""
    result = document(1.0, {"1": 1, "5": 10000})
    state = exchange.read(result, options=CORES, half_life_seconds=12 * HOUR)
    assert histogram.percentile(state, [0.5, 0.95], options=CORES, compat=True).tolist() == [[0, 0]]
    assert histogram.percentile(state, [0, 0.95], options=CORES)[0].tolist() == CORES.starts[[2, 6]].tolist()


@given(st.dictionaries(st.integers(0, 157), st.integers(1, 10000), min_size=1), st.floats(1e-3, 1e30))
def test_what_was_written_reads_back_within_a_bucket(result: dict[int, int], total: float) -> None:
    whole = {str(bucket_index): weight for bucket_index, weight in result.items()}
    state = exchange.read(document(total, whole), options=CORES, half_life_seconds=12 * HOUR)
    again = exchange.read(
        exchange.write(state, 0, options=CORES), options=CORES, half_life_seconds=12 * HOUR, where="again"
    )
    off = len(result) * 0.5 / sum(result.values()) + 1e-9
    low, middle, high = (
        histogram.percentile(each, [share], options=CORES)[0, 0]
        for each, share in ((state, 0.9 - off), (again, 0.9), (state, 0.9 + off))
    )
    assert low <= middle <= high


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, "histogram must be an object"),
        ([], "histogram must be an object"),
        (document(1, {"-1": 1}), r"bucketWeights has the bucket -1; there are 0 to 10"),
        (document(1, {"99": 1}), r"bucketWeights has the bucket 99; there are 0 to 10"),
        (document(1, {"one": 1}), "'one', which is no number"),
        (document(1, {"1": 1, "01": 2}), "a bucket twice"),
        (document(1, {"1": -1}), r"bucketWeights\[1\] must be a whole number"),
        (document(1, {"1": 2**32}), r"bucketWeights\[1\] must be a whole number"),
        (document(1, {"1": 1.5}), r"bucketWeights\[1\] must be a whole number"),  # type: ignore[dict-item]
        (document(1, {"1": True}), r"bucketWeights\[1\] must be a whole number"),
        (document(-1, {"1": 1}), "totalWeight must be a number, 0 or more, not -1"),
        (document(math.nan, {"1": 1}), "totalWeight must be a number"),
        (document(math.inf, {"1": 1}), "totalWeight must be a number"),
        (document(10**400, {"1": 1}), "totalWeight must be a number"),
        (document(1, {}), "totalWeight of 1.0, but bucketWeights that add up to 0"),
        (document(0, {"1": 1}), "totalWeight of 0.0, but bucketWeights that add up to 1"),
        (document(1, [1]), "bucketWeights must be an object"),  # type: ignore[arg-type]
        (document(1, {"1": 1}) | {"decay": 2}, "fields that are not known: decay"),
        (document(1, {"1": 1}) | {"referenceTimestamp": None}, "without a referenceTimestamp"),
        (document(1, {"1": 1}) | {"referenceTimestamp": "0001-01-01T00:00:00Z"}, "without a referenceTimestamp"),
        (document(1, {"1": 1}) | {"referenceTimestamp": "yesterday"}, "referenceTimestamp must be a time"),
        (document(1, {"1": 1}) | {"referenceTimestamp": "2023-13-45T00:00:00Z"}, "referenceTimestamp must be a time"),
        (document(1, {"1": 1}) | {"referenceTimestamp": 1700006400}, "referenceTimestamp must be a time"),
        (document(1, {"1": 1}) | {"referenceTimestamp": "2023-11-15T01:00:00Z"}, "no multiple of the half-life"),
    ],
)
def test_a_histogram_that_cannot_be_is_refused_with_what_and_where(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        exchange.read(wrong, options=WHOLE, half_life_seconds=12 * HOUR)


def test_in_compat_weight_without_buckets_is_taken_as_nothing() -> None:
    state = exchange.read(document(1e-5, {}), options=CORES, half_life_seconds=12 * HOUR, compat=True)
    assert state.total[0] == 0
    assert state.reference[0] == 1700006400


def test_times_of_other_zones_are_the_same_times() -> None:
    result = document(1, {"1": 1}) | {"referenceTimestamp": "2023-11-15T08:00:00+08:00"}
    assert exchange.read(result, options=CORES, half_life_seconds=12 * HOUR).reference[0] == 1700006400


def test_a_reference_between_seconds_is_not_written() -> None:
    state = fill([(1, 1, BEGAN + 0.75)], CORES, 0.75)
    assert state.reference[0] == BEGAN + 0.75
    with pytest.raises(ValueError, match="whole second"):
        exchange.write(state, 0, options=CORES)


def koordinator() -> dict[str, Any]:
    return {
        "UID": "__node__",
        "CPU": document(3, {"14": 5000, "15": 10000}),
        "Memory": document(2, {"87": 10000}),
        "LastUpdated": "2023-11-15T10:00:00Z",
    }


def vpa() -> dict[str, Any]:
    return {
        "lastUpdateTime": "2023-11-15T10:00:01Z",
        "version": "v3",
        "cpuHistogram": document(15.107305755130483, weights(REPORTED)),
        "memoryHistogram": {"referenceTimestamp": None, "bucketWeights": {}, "totalWeight": 0.0},
        "firstSampleStart": "2023-11-01T00:00:00Z",
        "lastSampleStart": "2023-11-15T10:00:00Z",
        "totalSamplesCount": 12345,
    }


def test_a_file_of_koordinator_goes_through_unchanged() -> None:
    model = exchange.read_koordinator(json.loads(json.dumps(koordinator())))
    assert model.uid == "__node__"
    assert model.updated == 1700042400
    assert (
        histogram.percentile(model.memory, [0.98], options=bucket.KOORDINATOR_MEMORY)[0, 0]
        == (bucket.KOORDINATOR_MEMORY.starts[88])
    )
    assert json.dumps(exchange.write_koordinator(model), sort_keys=True) == json.dumps(
        koordinator() | {"CPU": document(3.0, {"14": 5000, "15": 10000}), "Memory": document(2.0, {"87": 10000})},
        sort_keys=True,
    )


def test_a_checkpoint_of_the_vpa_goes_through_unchanged() -> None:
    model = exchange.read_vpa(json.loads(json.dumps(vpa())))
    assert (model.first_sample, model.last_sample, model.samples) == (1698796800, 1700042400, 12345)
    assert histogram.empty(model.memory, options=bucket.VPA_MEMORY)[0]
    assert exchange.write_vpa(model) == vpa()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"UID": ""}, "checkpoint.UID must be text"),
        ({"UID": 7}, "checkpoint.UID must be text"),
        ({"CPU": None}, "checkpoint.CPU must be an object"),
        ({"Memory": document(-1, {})}, "checkpoint.Memory.totalWeight"),
        ({"CPU": document(1, {"158": 1})}, "checkpoint.CPU.bucketWeights has the bucket 158; there are 0 to 157"),
        ({"LastUpdated": "soon"}, "checkpoint.LastUpdated must be a time"),
        ({"GPU": {}}, "fields that are not known: GPU"),
    ],
)
def test_a_file_of_koordinator_that_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        exchange.read_koordinator(koordinator() | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "v2"}, "checkpoint.version must be v3, not 'v2'"),
        ({"version": None}, "checkpoint.version must be v3, not None"),
        ({"cpuHistogram": document(1, {"176": 1})}, "checkpoint.cpuHistogram.bucketWeights has the bucket 176"),
        ({"memoryHistogram": None}, "checkpoint.memoryHistogram must be an object"),
        ({"totalSamplesCount": -1}, "checkpoint.totalSamplesCount must be a whole number"),
        ({"lastSampleStart": 5}, "checkpoint.lastSampleStart must be a time"),
        ({"extra": 1}, "fields that are not known: extra"),
    ],
)
def test_a_checkpoint_of_the_vpa_that_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        exchange.read_vpa(vpa() | change)


def test_a_checkpoint_that_is_no_object_is_refused() -> None:
    for read in (exchange.read_koordinator, exchange.read_vpa):
        with pytest.raises(ValueError, match="checkpoint must be an object"):
            read(["not", "one"])
