"""Garbage, odd numbers and damaged state: refused with a reason, and other nodes go on."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processors.partition.partition import FORMAT, Partition
from processors.rows import snapshot
from schemas import codec
from schemas.messages.estimate import Model
from schemas.messages.telemetry import SampleBlock
from tests.support.processors import telemetry
from tests.support.processors.telemetry import NAMES, block, stored
from tests.unit.processors.partition.models import configured, lines


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"not json", "Invalid JSON"),
        (codec.encode(block("n", 0)).replace(b"0.0", b"NaN", 1), "values"),
        (codec.encode(block("n", 0, cpu_util=-0.25)), "cpu_util is -0.25"),
        (codec.encode(block("n", 0, memory_util=1.5)), "memory_util is 1.5"),
        (codec.encode(block("n", 0)).replace(b'"v":1', b'"v":2'), "contract version 2"),
        (codec.encode(block("n", 0)).replace(b'"node":"n"', b'"node":"m"'), "payload is of node 'm'"),
        (codec.encode(block("n", 0)).replace(b'"node":"n"', b'"node":"n n"'), "white space"),
        (codec.encode(block("n", 0)).replace(b"[0.0,", b"[", 1), "do not fill rows"),
        (b"", "Invalid JSON"),
        (b"x" * 1_000_000, "Invalid JSON"),
    ],
)
def test_garbage_is_refused_with_its_reason_and_leaves_other_nodes_alone(payload: bytes, reason: str) -> None:
    good = [stored(block("a", 0, cpu_util=0.1)), stored(block("b", 0, cpu_util=0.2))]
    bad = (NAMES.part(0, "samples", "n"), payload)
    outputs, refusals = Partition(configured(), 0).fold([good[0], bad, good[1]])
    assert [refusal.index for refusal in refusals] == [1]
    assert reason in refusals[0].reason
    assert lines(outputs) == lines(Partition(configured(), 0).fold(good)[0])


@pytest.mark.parametrize(
    ("kind", "payload", "reason"),
    [
        ("containers", b"not json", "Invalid JSON"),
        ("containers", codec.encode(telemetry.event("m", 0)), "payload is of node 'm'"),
        ("containers", codec.encode(telemetry.event("n", 0)).replace(b'"created"', b'"vanished"'), "event"),
        (
            "pods",
            codec.encode(telemetry.usage("n", 1, [{"pod": "u"}])).replace(b'["u"]', b'["u","v"]'),
            "entries for 2",
        ),
        ("podfacts", codec.encode(telemetry.facts("n", "u", "w")).replace(b'"Running"', b'"Dancing"'), "phase"),
        ("nodefacts", b"{}", "uid: Field required"),
        ("forecast", b"{}", "forecast are not folded"),
    ],
)
def test_other_garbage_is_refused_with_its_reason_too(kind: str, payload: bytes, reason: str) -> None:
    good = [stored(block("n", 0)), stored(block("n", 1))]
    outputs, refusals = Partition(configured(), 0).fold([good[0], (NAMES.part(0, kind, "n"), payload), good[1]])
    assert [refusal.index for refusal in refusals] == [1]
    assert reason in refusals[0].reason
    assert lines(outputs) == lines(Partition(configured(), 0).fold(good)[0])


def test_facts_of_a_pod_that_is_bound_to_no_node_change_nothing() -> None:
    partition = Partition(configured(), 0)
    outputs, refusals = partition.fold([stored(telemetry.facts("-", "u", "w"))])
    assert (outputs, refusals, partition.nodes) == ([], [], 0)


def test_a_clock_far_ahead_does_not_move_the_event_second_of_others() -> None:
    partition = Partition(configured(), 0)
    messages = []
    for second in range(8):
        messages += [stored(block("good", second)), stored(block("wrong", second + 10_000_000))]
    outputs, _ = partition.fold(messages)
    sums = [output.message for output in outputs if isinstance(output.message, Model)]
    assert [model.at_us // 1_000_000 - telemetry.START for model in sums] == list(range(7))
    assert {model.nodes for model in sums} == {1}


def test_after_a_long_silence_the_event_second_follows_the_only_node_there_is() -> None:
    partition = Partition(configured(), 0)
    seconds = [0, 1, 2, 7200, 7201, 7202, 7203, 7204]
    outputs, _ = partition.fold([stored(block("n", second)) for second in seconds])
    sums = [output.message.at_us for output in outputs if isinstance(output.message, Model)]
    assert sums[-1] // 1_000_000 - telemetry.START == 7203


@pytest.mark.parametrize("body", [b"", b"nonsense", b"PK\x03\x04broken"])
def test_a_damaged_state_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        Partition(configured(), 0).restore(body)


def test_a_state_of_another_version_is_refused_and_says_what_becomes_of_it() -> None:
    older = snapshot.pack({"format": 1, "settings": ""}, {})
    with pytest.raises(ValueError, match=f"format 1, this version reads {FORMAT}; replay rebuilds it"):
        Partition(configured(), 0).restore(older)


def test_a_state_of_other_settings_is_refused() -> None:
    partition = Partition(configured(), 0)
    partition.fold(telemetry.recording(seconds=3))
    with pytest.raises(ValueError, match="other settings"):
        Partition(configured(model_variant="carico"), 0).restore(partition.snapshot())


BAD_BLOCKS = [
    block("x", 0).model_copy(update={"metrics": ["gpu_util"], "values": [0.5] * 10}),
    block("x", 0).model_copy(update={"metrics": ["net_bytes"], "values": [5.0] * 10}),
    block("x", 0, cpu_util=None, memory_util=None, memory_used=None),
    block("x", 0, net_bytes=1e15, disk_bytes=1e15, pods=1e6, load1=1e6, procs_running=1e6),
    block("x", 0).model_copy(update={"at_us": 2**53 - 1 - 60_000_000}),
    block("x", 0).model_copy(update={"memory_bytes": 2**53 - 1, "cpus": 65_536}),
    block("x", 0).model_copy(update={"memory_bytes": 1, "cpus": 1}),
]


@pytest.mark.cases
@pytest.mark.parametrize(
    ("variant", "form"),
    [("default", "composed"), ("default", "least_squares"), ("carico", "least_squares"), ("carico", "kalman_joint")],
)
@pytest.mark.parametrize("bad", BAD_BLOCKS)
def test_a_valid_block_with_odd_numbers_harms_nobody_else(variant: str, form: str, bad: SampleBlock) -> None:
    wanted = configured(model_variant=variant, estimate_form=form, model_global_weight="0")
    good = [stored(block("good", second, cpu_util=0.1, pods=float(second))) for second in range(6)]
    odd = [stored(bad.model_copy(update={"seq": 1000 + second})) for second in range(6)]
    mixed = [message for pair in zip(good, odd, strict=True) for message in pair]
    outputs, refusals = Partition(wanted, 0).fold(mixed)
    assert not refusals
    mine = [line for line in lines(outputs) if line[0].endswith(".good")]
    assert mine == [line for line in lines(Partition(wanted, 0).fold(good)[0]) if line[0].endswith(".good")]
    for output in outputs:
        codec.decode(type(output.message), codec.encode(output.message))


@pytest.mark.slow
@given(
    columns=st.lists(st.sampled_from(telemetry.METRICS), min_size=1, max_size=6, unique=True),
    numbers=st.lists(st.one_of(st.none(), st.floats(0, 1e15), st.sampled_from([0.0, 1.0])), min_size=60, max_size=60),
)
@settings(max_examples=60, deadline=None)
def test_no_block_that_the_schema_takes_stops_a_fold(columns: list[str], numbers: list[float | None]) -> None:
    odd = block("x", 0).model_copy(update={"metrics": columns, "values": numbers[: 10 * len(columns)]})
    outputs, refusals = Partition(configured(), 0).fold([stored(odd), stored(block("good", 0))])
    assert len(refusals) <= 1
    assert any(output.subject == "spazio.availability.good" for output in outputs)
