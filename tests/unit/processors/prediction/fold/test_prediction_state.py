"""Checkpoints of predictions: what is carried on, and what is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from processors.prediction.fold import PredictionPartition
from processors.rows import snapshot
from tests.unit.processors.prediction.fold.recordings import FAST, configured, recording


@pytest.fixture(scope="module")
def body() -> bytes:
    partition = PredictionPartition(configured(**FAST), 0)
    partition.fold(recording(3, 1))
    return partition.snapshot()


@pytest.mark.slow
def test_arrays_that_were_renamed_keep_their_names_in_checkpoints(body: bytes) -> None:
    _, arrays = snapshot.unpack(body)
    assert {"node.report.told_us", "node.report.told", "node.rejects.told_us"} <= arrays.keys()
    assert not [name for name in arrays if "published" in name]


@pytest.mark.slow
@given(data=st.data())
@hypothesis(max_examples=300, deadline=None)
def test_a_state_with_flipped_bytes_is_refused_or_is_the_same_state(body: bytes, data: st.DataObject) -> None:
    broken = bytearray(body)
    # Names and sizes of arrays stand at the end, in the directory.
    offsets = st.one_of(st.integers(0, len(body) - 1), st.integers(len(body) - 8000, len(body) - 1))
    for offset in data.draw(st.lists(offsets, min_size=1, max_size=3)):
        broken[offset] ^= data.draw(st.integers(1, 255))
    partition = PredictionPartition(configured(**FAST), 0)
    try:
        partition.restore(bytes(broken))
    except ValueError:
        return
    assert partition.snapshot() == body


@pytest.mark.slow
@given(length=st.integers(0, 300_000))
@hypothesis(max_examples=40, deadline=None)
def test_a_state_that_was_cut_off_is_refused(body: bytes, length: int) -> None:
    with pytest.raises(ValueError, match="damaged"):
        PredictionPartition(configured(**FAST), 0).restore(body[: min(length, len(body) - 1)])


@pytest.mark.slow
def test_a_state_without_one_of_its_arrays_or_with_one_of_another_length_is_refused(body: bytes) -> None:
    header, arrays = snapshot.unpack(body)
    for name, values in arrays.items():
        for wrong in (None, values[:-1], np.concatenate((values, values[-1:])), values.astype("c16")):
            if wrong is not None and wrong.shape == values.shape and wrong.dtype == values.dtype:
                continue  # an empty one cannot be cut
            changed = arrays | {name: wrong} if wrong is not None else {n: a for n, a in arrays.items() if n != name}
            with pytest.raises(ValueError, match=r"state|histogram|type"):
                PredictionPartition(configured(**FAST), 0).restore(snapshot.pack(header, changed))


@pytest.mark.slow
def test_a_state_without_one_of_its_names_or_with_other_rows_is_refused(body: bytes) -> None:
    header, arrays = snapshot.unpack(body)
    nodes = header["nodes"]
    newer = {"quota", "made"}  # an older program has stored none of these
    wrong: list[dict[str, Any]] = [{n: v for n, v in header.items() if n != name} for name in header.keys() - newer]
    wrong += [header | {"nodes": {n: v for n, v in nodes.items() if n != name}} for name in nodes]
    wrong += [header | {name: value} for name in header for value in (7, "text", [1]) if name != "withheld"]
    wrong += [header | {name: None} for name in header.keys() - {"withheld", "quota"}]
    wrong += [
        header | {"slots": header["slots"] + 1},
        header | {"nodes": nodes | {"slots": nodes["slots"][:-1]}},
        header | {"nodes": nodes | {"donors": {"shop/a": header["slots"]}}},
        header | {"nodes": nodes | {"past": {"shop/a": 10_000}}},
        header | {"pods": {"n": [{"uid": "u"}]}},
        header | {"format": 99},
    ]
    for each in wrong:
        with pytest.raises(ValueError, match=r"state|unpack|update"):
            PredictionPartition(configured(**FAST), 0).restore(snapshot.pack(each, arrays))


@pytest.mark.parametrize("horizon", ["7", "60"])
def test_another_horizon_keeps_what_was_learned(body: bytes, horizon: str) -> None:
    _, learned = snapshot.unpack(body)
    partition = PredictionPartition(configured(**FAST | {"predict_horizon_seconds": horizon}), 0)
    partition.restore(body)
    _, arrays = snapshot.unpack(partition.snapshot())
    messages = {
        name
        for name in learned
        if name not in arrays or not np.array_equal(learned[name], arrays[name], equal_nan=True)
    }
    assert {name.split(".")[1] for name in messages if name.startswith("node.")} <= {"calibrated", "accuracy"}
    assert {name for name in messages if name.startswith("node.calibrated")} == {"node.calibrated.waiting.born_us"}
    assert not {name for name in messages if name.startswith(("groups.", "pods."))}
    before = learned["lesson.today.counts"].sum() + learned["lesson.before.counts"].sum()
    after = arrays["lesson.today.counts"].sum() + arrays["lesson.before.counts"].sum()
    assert before > 0
    assert after == pytest.approx(before / 3 if horizon == "60" else before)
    assert not (arrays["node.accuracy.sums.weight"] > 0).any()


@pytest.mark.parametrize("horizon", ["7", "60"])
def test_what_was_judged_of_a_row_says_nothing_of_another_horizon(horizon: str) -> None:
    flags = FAST | {"predict_violation": "0.5"}
    before = PredictionPartition(configured(**flags), 0)
    before.fold(recording(3, 1))
    _, learned = snapshot.unpack(before.snapshot())
    after = PredictionPartition(configured(**flags | {"predict_horizon_seconds": horizon}), 0)
    after.restore(before.snapshot())
    _, arrays = snapshot.unpack(after.snapshot())
    judged = {f"node.adaptive.{part}" for part in ("offset", "judged", "loss")}
    changed = {name for name in learned if not np.array_equal(learned[name], arrays[name], equal_nan=True)}
    assert {name for name in changed if name.startswith("node.adaptive.")} == judged
    assert not any(arrays[name].any() for name in judged)


@pytest.mark.parametrize("text", ["", "[]", '{"predict": {"horizon_seconds": 0}}', '{"predict": {}}'])
def test_a_state_without_a_horizon_is_refused(body: bytes, text: str) -> None:
    header, arrays = snapshot.unpack(body)
    with pytest.raises(ValueError, match="horizon"):
        PredictionPartition(configured(**FAST), 0).restore(snapshot.pack(header | {"settings": text}, arrays))


@pytest.mark.parametrize(
    "flags",
    [
        {"predict_model": "max"},
        {"predict_check_seconds": "7"},
        {"predict_update_seconds": "7"},
        {"predict_enabled": "false"},
        {"estimate_form": "least_squares"},
        {"policy_slowdown": "1.5"},
        {"reject_threshold": "0.5"},
        {"reject_enabled": "false"},
        {"forecast_enabled": "false"},
    ],
)
def test_settings_that_are_not_of_the_form_do_not_void_what_is_remembered(body: bytes, flags: dict[str, str]) -> None:
    partition = PredictionPartition(configured(**FAST | flags), 0)
    partition.restore(body)
    assert partition.nodes == 4
