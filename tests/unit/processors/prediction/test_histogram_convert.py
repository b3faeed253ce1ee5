"""Histograms in the buckets of others: percentiles are never smaller, and weights go on to fade."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.prediction.histogram import bucket, convert, exchange, histogram
from processors.prediction.histogram.bucket import Options
from processors.prediction.histogram.exchange import Koordinator

LIVES = (12 * 3600.0, 24 * 3600.0)
START = 1_800_000_000.0
SHARES = (0.1, 0.5, 0.9, 0.95, 0.98, 1.0)


def filled(values: list[float], options: Options, half_life: float) -> histogram.State:
    """Return a histogram of one row with a sample a minute."""
    state = histogram.init(1, options)
    for index, value in enumerate(values):
        sample = np.array([value])
        state = histogram.add(state, sample, 1.0, START + 60 * index, options=options, half_life_seconds=half_life)
    return state


def model(cores: list[float], memory: list[float]) -> Koordinator:
    return Koordinator(
        "u",
        filled(cores, bucket.KOORDINATOR_CPU, LIVES[0]),
        filled(memory, bucket.KOORDINATOR_MEMORY, LIVES[1]),
        START,
    )


def percentiles(state: histogram.State, options: Options) -> histogram.Array:
    row: histogram.Array = histogram.percentile(state, SHARES, options=options)[0]
    return row


@pytest.mark.slow
@given(
    st.lists(st.floats(0.001, 500), min_size=1, max_size=20),
    st.lists(st.floats(1e5, 5e11), min_size=1, max_size=20),
)
def test_percentiles_never_become_smaller_and_larger_by_one_bucket_at_most(
    cores: list[float], memory: list[float]
) -> None:
    ours = model(cores, memory)
    theirs = convert.to_vpa(ours, LIVES)
    back = convert.of_vpa("u", theirs, LIVES)
    for before, after, source, target in (
        (ours.cpu, theirs.cpu, bucket.KOORDINATOR_CPU, bucket.VPA_CPU),
        (ours.memory, theirs.memory, bucket.KOORDINATOR_MEMORY, bucket.VPA_MEMORY),
        (theirs.cpu, back.cpu, bucket.VPA_CPU, bucket.KOORDINATOR_CPU),
        (theirs.memory, back.memory, bucket.VPA_MEMORY, bucket.KOORDINATOR_MEMORY),
    ):
        old, new = percentiles(before, source), percentiles(after, target)
        assert (new >= old).all()
        largest = target.ends[np.minimum(target.find(old) + 1, target.count - 1)]
        assert (new <= largest).all()
        assert after.total == pytest.approx(after.weights.sum())


def test_a_new_sample_counts_as_much_as_the_newest_one_does_after_the_change() -> None:
    ours = model([1.0, 2.0, 4.0], [1e9])
    theirs = convert.to_vpa(ours, LIVES).cpu
    values, at = np.array([300.0]), START + 120
    added = histogram.add(
        theirs, values, 1.0, at, options=bucket.VPA_CPU, half_life_seconds=float(bucket.VPA_CPU_HALF_LIFE_SECONDS)
    )
    newest = added.weights[0, bucket.VPA_CPU.find(values)[0]]
    weights = theirs.weights[0, np.flatnonzero(theirs.weights[0])]
    # A minute of the old half-life lies between the samples of before.
    assert weights / newest == pytest.approx([2 ** (-120 / LIVES[0]), 2 ** (-60 / LIVES[0]), 1.0])


def test_a_checkpoint_is_read_with_and_without_its_object() -> None:
    ours = model([1.0, 2.0, 4.0], [1e9, 2e9])
    document = json.loads(json.dumps(convert.write_vpa(ours, LIVES)))
    assert document["kind"] == "VerticalPodAutoscalerCheckpoint"
    for given_document in (document, document["status"]):
        back = convert.read_vpa("u", given_document, LIVES)
        assert back.uid == "u"
        assert percentiles(back.cpu, bucket.KOORDINATOR_CPU) == pytest.approx(
            percentiles(ours.cpu, bucket.KOORDINATOR_CPU), rel=0.11
        )
        # What is written of it again is the same: the reference fits the half-lives of both.
        assert exchange.read_koordinator(exchange.write_koordinator(back)).uid == "u"


def test_an_empty_histogram_stays_empty() -> None:
    none = Koordinator(
        "u", histogram.init(1, bucket.KOORDINATOR_CPU), histogram.init(1, bucket.KOORDINATOR_MEMORY), START
    )
    theirs = convert.to_vpa(none, LIVES)
    assert np.isnan(percentiles(theirs.cpu, bucket.VPA_CPU)).all()
    assert convert.read_vpa("u", convert.write_vpa(none, LIVES), LIVES).cpu.total == [0.0]
