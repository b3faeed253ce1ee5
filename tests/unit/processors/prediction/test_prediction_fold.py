"""Laws of the predictions: grouping and restarts change nothing, damaged states and bad input harm nobody."""

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from processors.partition.output import Output
from processors.prediction.fold import PredictionPartition
from processors.rows import snapshot
from processors.workload.roster import Roster
from schemas import codec
from schemas.messages.base import Message
from schemas.messages.facts import NodeFacts, PodFacts
from schemas.messages.prediction import Prediction, Reject
from schemas.messages.telemetry import PodUsageBlock, SampleBlock
from schemas.settings import Settings, load
from tests.support import telemetry
from tests.support.telemetry import NAMES, START, block, stored

BEGIN = 40  # START + BEGIN is a whole minute
Stream = list[tuple[str, bytes]]
# Windows of five seconds, so that half a minute of telemetry shows what else takes hours.
FAST = {
    "predict_update_seconds": "5",
    "predict_check_seconds": "3",
    "predict_report_seconds": "6",
    "predict_force_seconds": "20",
    "predict_horizon_seconds": "20",
    "predict_cold_start_seconds": "15",
    "predict_expiration_seconds": "20",
}


def configured(**flags: str) -> Settings:
    """Return settings; pods need no ten minutes of evidence and what is lent rises at once, so streams may be short."""
    return load({"predict_evidence_seconds": "0", "predict_mid_rise": "3600", **flags}, environ={})


def lines(outputs: Sequence[Output]) -> list[tuple[str, bytes]]:
    return [(output.subject, codec.encode(output.message)) for output in outputs]


def predictions(outputs: Sequence[Output]) -> list[Prediction]:
    return [output.message for output in outputs if isinstance(output.message, Prediction)]


def of(node: str, outputs: Sequence[Output]) -> list[tuple[str, bytes]]:
    return [line for line in lines(outputs) if line[0].endswith(f".{node}")]


def node_facts(node: str, version: int, cpu: float, memory: float, **fields: Any) -> NodeFacts:
    return NodeFacts.model_validate(
        {
            "node": node,
            "uid": node,
            "version": version,
            "at_us": START * 1_000_000,
            "created_us": START * 1_000_000,
            "ready": True,
            "unschedulable": False,
            "allocatable": {"cpu": cpu, "memory": memory},
            "capacity": {},
            "labels": {},
            "annotations": {},
            "taints": [],
            **fields,
        }
    )


def calm(node: str, seconds: Sequence[int], cpu: float = 0.25, **fields: Any) -> Stream:
    """Return a node that always uses the same, and has one pod that uses a core of it."""
    messages: Stream = []
    for second in seconds:
        messages.append(stored(block(node, BEGIN + second, cpu_util=cpu, memory_util=0.5, **fields)))
        pod = {"pod": f"{node}-pod", "cpu_cores": 0.5, "memory_bytes": 1e9}
        messages.append(stored(telemetry.usage(node, BEGIN + second + 1, [pod])))
    return messages


@functools.cache
def recording(seed: int, pace: int, steps: int = 60) -> Stream:
    """Return a stream of four nodes in which everything happens that may: see the names of what is called."""
    random = np.random.default_rng(seed)
    messages: Stream = []
    pods = random.integers(0, 4, 4)
    for step in range(steps):
        second = BEGIN + step * pace
        for index in random.permutation(4).tolist():
            node = f"node-{index}"
            if random.random() < 0.1 or (index == 3 and steps // 8 < step < steps * 7 // 8):
                continue  # one is silent for most of the time and comes back
            pods[index] = max(0, pods[index] + random.choice([-1, 0, 0, 0, 1]))
            own: list[Message] = [_facts(node, second, random)] if random.random() < 0.4 else []
            own += [_block(node, index, step, second, random), _usage(node, second, int(pods[index]), random)]
            for place in random.permutation(len(own)).tolist():
                messages += [stored(own[place])] * (2 if random.random() < 0.1 else 1)
            if random.random() < 0.05:
                messages.append(messages[random.integers(len(messages))])
    return messages


@functools.cache
def undisturbed(seed: int, pace: int) -> list[tuple[str, bytes]]:
    """Return what the recording gives when it is folded at once."""
    return lines(PredictionPartition(configured(**FAST), 0).fold(recording(seed, pace)))


@pytest.mark.cases
@pytest.mark.parametrize("seed", range(3))
def test_seconds_that_list_the_same_pods_are_worth_the_same_together_and_one_by_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def folded() -> tuple[list[tuple[str, bytes]], bytes]:
        partition = PredictionPartition(configured(**FAST), 0)
        return lines(partition.fold(recording(seed, 1))), partition.snapshot()

    together = folded()
    monkeypatch.setattr(Roster, "lists", lambda *_: False)
    assert folded() == together


def _block(node: str, index: int, step: int, second: int, random: np.random.Generator) -> SampleBlock:
    made = telemetry.noisy(node, second, int(random.integers(0, 8)), random)
    ahead = 5000 if index == 1 and 20 <= step < 24 else 0
    boot = "another boot" if index == 2 and step >= 30 else "boot"
    cpus = 8 if index == 0 and step >= 40 else 4
    at_us = made.at_us + ahead * 1_000_000 + int(random.integers(0, 200_000))
    return made.model_copy(update={"at_us": at_us, "boot": boot, "cpus": cpus})


def _usage(node: str, second: int, pods: int, random: np.random.Generator) -> PodUsageBlock:
    listed = [
        {
            "pod": f"{node}-{number}",
            "workloads": f"shop/{'abc'[number % 3]}",
            "containers": int(random.random() < 0.95),
            "cpu_cores": float(random.uniform(0, 0.5)) if random.random() < 0.95 else None,
            "memory_bytes": float(random.uniform(1e7, 1e8)),
        }
        for number in range(2 * pods)
    ]
    return telemetry.usage(node, second + 1, listed)


def _facts(node: str, second: int, random: np.random.Generator) -> NodeFacts | PodFacts:
    if random.random() < 0.2:
        return node_facts(node, second, float(random.uniform(3, 4)), 7e9, deleted=bool(random.random() < 0.2))
    pod = f"{node}-{random.integers(0, 6)}"
    fields = {
        "requests": {"cpu": float(random.uniform(0, 2)), "memory": float(random.uniform(0, 1e9))},
        "priority": int(random.choice([9500, 7500, 5500, 3500, 0])),
        "labels": {"koordinator.sh/qosClass": "LSE"} if random.random() < 0.2 else {},
        "terminating": bool(random.random() < 0.1),
        "deleted": bool(random.random() < 0.2),
        "created_us": (START + second - int(random.integers(0, 60))) * 1_000_000,
    }
    return telemetry.facts(node, pod, f"shop/{random.choice(list('abc'))}", second, **fields)


@pytest.mark.slow
@given(
    seed=st.integers(0, 5),
    pace=st.sampled_from([1, 80]),
    cuts=st.lists(st.integers(0, 600), max_size=40),
    restarts=st.lists(st.integers(0, 600), max_size=4),
)
@hypothesis(max_examples=7, deadline=None)
def test_neither_ticks_nor_restarts_change_a_byte(seed: int, pace: int, cuts: list[int], restarts: list[int]) -> None:
    wanted = configured(**FAST)
    messages = recording(seed, pace)
    whole = undisturbed(seed, pace)
    partition, parts = PredictionPartition(wanted, 0), []
    edges = sorted({0, *cuts, *restarts, len(messages)})
    for start, end in itertools.pairwise(edges):
        if start in restarts:
            body = partition.snapshot()
            partition = PredictionPartition(wanted, 0)
            partition.restore(body)
            assert partition.snapshot() == body
        parts += lines(partition.fold(messages[start:end]))
    assert parts == whole
    assert {line[0].split(".")[1] for line in whole} == {"prediction", "reject", "workloads"}


@pytest.mark.slow
@pytest.mark.parametrize("pace", [1, 80])
def test_every_message_alone_gives_what_all_together_give(pace: int) -> None:
    wanted = configured(**FAST)
    messages = recording(7, pace)
    partition = PredictionPartition(wanted, 0)
    alone = [line for message in messages for line in lines(partition.fold([message]))]
    assert alone == undisturbed(7, pace)


def test_the_recording_of_these_laws_shows_everything() -> None:
    messages = [
        predicted
        for model in ("calibrated", "n_sigma")
        for predicted in predictions(
            PredictionPartition(configured(**FAST, predict_model=model), 0).fold(recording(1, 1))
        )
    ]
    assert {group for predicted in messages for group in predicted.peaks} == {
        "node",
        "prod",
        "mid",
        "batch",
        "free",
        "none",
        "system",
    }
    assert {predicted.reason for predicted in messages} == {"report", "change", "force"}
    assert any(predicted.accuracy for predicted in messages)
    assert any(predicted.unpredicted.cpu for predicted in messages)
    assert len({predicted.capacity.cpu for predicted in messages}) > 3


def test_outputs_say_which_message_they_came_of_in_the_order_of_the_stream() -> None:
    messages = recording(2, 1)
    outputs = PredictionPartition(configured(**FAST), 0).fold([(NAMES.part(0, "samples", "n"), b"garbage"), *messages])
    places = [output.index for output in outputs]
    assert places == sorted(places)
    of_nodes = [output for output in outputs if "workloads" not in output.subject]
    assert all(messages[output.index - 1][0].endswith(output.subject.rsplit(".", 1)[-1]) for output in of_nodes)


def test_a_node_is_told_the_same_alone_as_among_others_until_something_was_learned_of_all() -> None:
    mine = calm("mine", range(70))
    others = [calm(f"other-{number}", range(70), cpu=0.1 * number) for number in range(4)]
    mixed = [message for group in zip(*others, mine, strict=True) for message in group]
    assert of("mine", PredictionPartition(configured(), 0).fold(mixed)) == of(
        "mine", PredictionPartition(configured(), 0).fold(mine)
    )


@pytest.fixture(scope="module")
def body() -> bytes:
    partition = PredictionPartition(configured(**FAST), 0)
    partition.fold(recording(3, 1))
    return partition.snapshot()


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
    places = st.one_of(st.integers(0, len(body) - 1), st.integers(len(body) - 8000, len(body) - 1))
    for place in data.draw(st.lists(places, min_size=1, max_size=3)):
        broken[place] ^= data.draw(st.integers(1, 255))
    partition = PredictionPartition(configured(**FAST), 0)
    try:
        partition.restore(bytes(broken))
    except ValueError:
        return
    assert partition.snapshot() == body


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


def usage(node: str, second: int, cpu: float | None, memory: float | None, **fields: Any) -> tuple[str, bytes]:
    pod = {"pod": "p", "cpu_cores": cpu, "memory_bytes": memory}
    return stored(telemetry.usage(node, BEGIN + second, [pod], **fields))


# A pod takes no more than its node has, whatever its agent says, but may ask for any amount.
_BEFORE: dict[str, Stream] = {
    "beyond": [
        stored(telemetry.facts("odd", f"p{number}", "shop/a", requests={"cpu": 1e18, "memory": 1e18}))
        for number in range(2)
    ]
}


def _odd(kind: str) -> Stream:
    """Return two minutes of node `odd`, in which something is wrong all the time."""
    messages = [*_BEFORE.get(kind, [])]
    for second in range(130):
        if kind == "beyond":
            pods = [{"pod": f"p{number}", "cpu_cores": 1e18, "memory_bytes": 1e18} for number in range(2)]
            messages.append(stored(block("odd", BEGIN + second, cpu_util=1.0)))
            messages.append(stored(telemetry.usage("odd", BEGIN + second + 1, pods)))
        elif kind == "missing":
            made = block("odd", BEGIN + second, cpu_util=None, memory_util=None, cpu_pressure=None)
            messages += [stored(made), usage("odd", second + 1, None, None)]
        elif kind == "few":
            made = block("odd", BEGIN + second, samples=(1, 100)[second % 2], cpu_util=0.5, memory_util=0.5)
            messages += [stored(made), usage("odd", second + 1, 0.5, 1e9)]
        elif kind == "tiny":
            made = block("odd", BEGIN + second, cpu_util=0.5).model_copy(update={"memory_bytes": 1, "cpus": 1})
            messages += [stored(made), usage("odd", second + 1, 0.5, 1e12)]
        elif kind == "sizes":
            made = block("odd", BEGIN + second, cpu_util=0.5, memory_util=0.5)
            large = {"memory_bytes": (1 + second % 3) << 30, "cpus": 1 + second % 5}
            messages += [stored(made.model_copy(update=large)), usage("odd", second + 1, 0.5, 1e9)]
        elif kind == "columns":
            made = block("odd", BEGIN + second).model_copy(update={"metrics": ["gpu_util"], "values": [0.5] * 10})
            messages.append(stored(made))
        elif kind == "classes":
            reports = telemetry.facts(
                "odd", "p", "w", second, priority=-7, labels={"koordinator.sh/priority-class": "?"}
            )
            messages += [stored(block("odd", BEGIN + second)), stored(reports), usage("odd", second + 1, 0.5, 1e9)]
        elif kind == "pods first":
            messages.append(usage("odd", second + 1, 0.5, 1e9))
            messages += [stored(block("odd", BEGIN + second))] if second > 20 else []
        else:  # the clock is set: for a minute nobody believes it
            moved = {"forward": 10**7, "back": -(10**7)}[kind] if second > 20 else 0
            made = block("odd", BEGIN + second, cpu_util=0.5, memory_util=0.5)
            at_us = made.at_us + moved * 1_000_000
            messages += [stored(made.model_copy(update={"at_us": at_us})), usage("odd", second + 1, 0.5, 1e9)]
    return messages


KINDS = ["beyond", "missing", "few", "tiny", "sizes", "columns", "classes", "pods first", "forward", "back"]


@pytest.mark.cases
@pytest.mark.parametrize("kind", KINDS)
def test_a_node_with_odd_telemetry_harms_no_other(kind: str) -> None:
    good = calm("good", range(130))
    odd = _odd(kind)
    mixed = [message for pair in itertools.zip_longest(good, odd) for message in pair if message]
    outputs = PredictionPartition(configured(), 0).fold(mixed)
    assert of("good", outputs) == of("good", PredictionPartition(configured(), 0).fold(good))
    predicted = [prediction for prediction in predictions(outputs) if prediction.node == "odd"]
    assert bool(predicted) == (kind not in ("missing", "columns", "beyond"))
    for output in outputs:
        codec.decode(type(output.message), codec.encode(output.message))


def test_what_no_message_can_hold_is_withheld_and_counted() -> None:
    partition = PredictionPartition(configured(), 0)
    assert not predictions(partition.fold(_odd("beyond")))
    assert partition.withheld


@pytest.mark.slow
@given(
    numbers=st.lists(st.one_of(st.none(), st.floats(0, 1e18)), min_size=12, max_size=12),
    requests=st.lists(st.floats(0, 1e18), min_size=4, max_size=4),
    sizes=st.tuples(st.integers(1, 65_536), st.integers(1, 2**53 - 1)),
)
@hypothesis(max_examples=40, deadline=None)
def test_no_telemetry_that_the_schema_takes_stops_a_fold(
    numbers: list[float | None], requests: list[float], sizes: tuple[int, int]
) -> None:
    messages: Stream = []
    for index in range(2):
        amounts = {"cpu": requests[index], "memory": requests[index + 2]}
        messages.append(stored(telemetry.facts("odd", f"p{index}", "w", 1, requests=amounts, priority=9000)))
    messages.append(stored(node_facts("odd", 1, requests[0], requests[1])))
    update = {"cpus": sizes[0], "memory_bytes": sizes[1]}
    for second in range(12):
        made = block("odd", BEGIN + second, cpu_util=0.5, memory_util=0.5).model_copy(update=update)
        pods = [{"pod": f"p{index}", "cpu_cores": numbers[second], "memory_bytes": numbers[-1]} for index in range(2)]
        messages += [stored(made), stored(telemetry.usage("odd", BEGIN + second + 1, pods))]
        messages += calm("good", [second])
    outputs = PredictionPartition(configured(**FAST), 0).fold(messages)
    assert any(prediction.node == "good" for prediction in predictions(outputs))


def test_garbage_is_passed_over() -> None:
    good = calm("good", range(40))
    kinds = ("samples", "pods", "podfacts", "nodefacts", "containers", "edge")
    bad = [(NAMES.part(0, kind, "n"), payload) for kind in kinds for payload in (b"not json", b"{}", b"")]
    once = lines(PredictionPartition(configured(), 0).fold(good))
    assert lines(PredictionPartition(configured(), 0).fold([*good[:30], *bad, *good[30:]])) == once


def test_a_repeated_or_late_block_counts_once() -> None:
    messages = calm("n", range(70))
    again = [message for index in range(0, len(messages), 2) for message in messages[max(0, index - 6) : index + 2]]
    assert len(again) > 3 * len(messages)
    once, often = (
        PredictionPartition(configured(), 0).fold(predicted) for predicted in (messages, [*messages[:2], *again])
    )
    assert lines(often) == lines(once)


def test_rejects_come_at_least_every_four_seconds_once_a_window_is_full() -> None:
    outputs = PredictionPartition(configured(), 0).fold(calm("n", range(60)))
    messages = [output.message for output in outputs if isinstance(output.message, Reject)]
    gaps = {(after.at_us - before.at_us) // 1_000_000 for before, after in itertools.pairwise(messages)}
    assert gaps == {4}
    assert not any(each.reject for each in messages)


@pytest.mark.parametrize(("section", "form"), [("predict", Prediction), ("reject", Reject)])
def test_what_is_not_enabled_is_not_said(section: str, form: type[Message]) -> None:
    messages = calm("n", range(70))
    assert any(isinstance(predicted.message, form) for predicted in PredictionPartition(configured(), 0).fold(messages))
    without = PredictionPartition(configured(**{f"{section}_enabled": "false"}), 0).fold(messages)
    assert not any(isinstance(predicted.message, form) for predicted in without)
    assert without


@pytest.mark.slow
def test_nothing_of_pods_piles_up_where_nobody_forecasts() -> None:
    sizes = []
    partition = PredictionPartition(configured(**FAST, forecast_enabled="false"), 0)
    for begin in (0, 200, 400):
        for second in range(begin, begin + 200):
            partition.fold([stored(telemetry.usage("n", BEGIN + second, [{"pod": f"p{second}"}], seq=second))])
            partition.fold([stored(block("n", BEGIN + second, seq=second))])
        sizes.append(len(partition.snapshot()))
    assert sizes[2] < 1.2 * sizes[1]


@pytest.mark.parametrize("missing", ["cpu_util", "memory_util"])
def test_one_resource_is_enough_and_nothing_of_the_other_is_given_away(missing: str) -> None:
    messages: Stream = []
    for second in range(BEGIN, BEGIN + 100):
        share = 0.3 + 0.01 * (second % 7)
        usage = {name: None if name == missing else share for name in ("cpu_util", "memory_util")}
        messages.append(stored(block("a", second, samples=10, seq=None, **usage)))
    made = predictions(PredictionPartition(configured(**FAST, predict_violation="0.5"), 0).fold(messages))
    assert made
    last = made[-1]
    present, unknown = ("memory", "cpu") if missing == "cpu_util" else ("cpu", "memory")
    assert 0 < getattr(last.peak, present) < getattr(last.capacity, present)
    assert getattr(last.peak, unknown) == getattr(last.capacity, unknown)
    assert getattr(last.reclaimable, unknown) == 0
    assert (made[0].assumed, last.assumed) == (["cpu", "memory"], [unknown])
    assert last.violation == 0.5
    assert last.accuracy
    assert last.accuracy["calibrated"].settled > 0
