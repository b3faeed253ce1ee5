"""Laws of the fold: grouping, restarts and repetition change nothing; garbage harms nobody else."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processors.estimation import slowdown
from processors.partition.output import Output
from processors.partition.partition import FORMAT, Partition
from processors.rows import snapshot
from schemas import codec
from schemas.messages.estimate import Availability, ClassSum, Model
from schemas.messages.telemetry import SampleBlock
from schemas.settings import Settings, load
from tests.support import telemetry
from tests.support.telemetry import NAMES, block, stored

VARIANTS = ("default", "carico")


def configured(**flags: str) -> Settings:
    return load(flags, environ={})


def lines(outputs: list[Output]) -> list[tuple[str, bytes]]:
    return [(output.subject, codec.encode(output.message)) for output in outputs]


def with_models(messages: list[tuple[str, bytes]], variant: str) -> list[tuple[str, bytes]]:
    """Put global models between the blocks, as the aggregator does."""
    features = ["cpu", "memory"] if variant == "carico" else list(configured().model.features)
    size = len(features)
    model = Model(
        scope="global",
        at_us=1,
        features=features,
        moment=[0.02 if row == column else 0.005 for row in range(size) for column in range(row, size)],
        cost=[0.4, 3e8, *[0.0] * (size - 2)],
        pods=3,
        nodes=2,
        classes={name: ClassSum(pods=2, cpu=0.5, memory=3e8) for name in ("shop/a", "shop/m", "elsewhere/z")},
    )
    present = model.classes or {}
    later = model.model_copy(update={"classes": {name: item for name, item in present.items() if name != "shop/m"}})
    left, right = ((NAMES.model, codec.encode(item)) for item in (model, later))
    return [*messages[:7], left, *messages[7:90], right, *messages[90:]]


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@given(cuts=st.lists(st.integers(0, 140), max_size=25), seed=st.integers(0, 3))
@settings(max_examples=12, deadline=None)
def test_how_messages_are_grouped_into_ticks_changes_no_byte(variant: str, cuts: list[int], seed: int) -> None:
    wanted = configured(model_variant=variant)
    messages = with_models(telemetry.recording(seed=seed), variant)
    whole = lines(Partition(wanted, 0).fold(messages)[0])
    partition, parts = Partition(wanted, 0), []
    edges = [0, *sorted(cuts), len(messages)]
    for start, end in itertools.pairwise(edges):
        parts += lines(partition.fold(messages[start:end])[0])
    assert parts == whole
    assert any(subject.startswith("spazio.model.partition") and b'"classes":{' in payload for subject, payload in whole)
    rows = [codec.decode(Availability, payload) for subject, payload in whole if ".availability." in subject]
    assert any(len(row.classes or {}) > configured().estimate.classes for row in rows)
    assert any(row.churn for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "seconds", "seed"), [(4, 8, 2), (4, 8, 3), pytest.param(5, 12, 5, marks=pytest.mark.slow)]
)
def test_a_cut_at_any_message_changes_no_byte(nodes: int, seconds: int, seed: int) -> None:
    """Among them: a node that runs pods of a class in one fold with a node that runs none."""
    messages = telemetry.recording(nodes, seconds, seed)
    whole = Partition(configured(), 0)
    expected = lines(whole.fold(messages)[0])
    for cut in range(1, len(messages)):
        partition = Partition(configured(), 0)
        outputs = partition.fold(messages[:cut])[0] + partition.fold(messages[cut:])[0]
        assert lines(outputs) == expected, cut
        assert partition.snapshot() == whole.snapshot(), cut


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_restored_snapshot_goes_on_byte_for_byte(variant: str) -> None:
    wanted = configured(model_variant=variant)
    messages = with_models(telemetry.recording(seconds=20), variant)
    whole = lines(Partition(wanted, 0).fold(messages)[0])
    for cut in (1, 20, 77, 120, len(messages) - 3):
        first, second = Partition(wanted, 0), Partition(wanted, 0)
        before = lines(first.fold(messages[:cut])[0])
        second.restore(first.snapshot())
        assert before + lines(second.fold(messages[cut:])[0]) == whole


def test_a_node_gets_the_same_numbers_alone_as_among_others() -> None:
    messages = telemetry.recording(nodes=6)
    mine = [message for message in messages if message[0].endswith("node-3")]
    wanted = configured(model_global_weight="0")

    def of_node(outputs: list[Output]) -> list[tuple[str, bytes]]:
        return [line for line in lines(outputs) if line[0].endswith("node-3")]

    assert of_node(Partition(wanted, 0).fold(messages)[0]) == of_node(Partition(wanted, 0).fold(mine)[0])


def test_a_repeated_or_late_block_is_folded_once() -> None:
    first, second = stored(block("n", 0, cpu_util=0.5)), stored(block("n", 1, cpu_util=0.5))
    once = lines(Partition(configured(), 0).fold([first, second])[0])
    assert lines(Partition(configured(), 0).fold([first, first, second, second, first])[0]) == once


def test_a_rebooted_node_counts_again() -> None:
    partition = Partition(configured(), 0)
    partition.fold([stored(block("n", 0, seq=90_000))])
    rebooted = block("n", 30, seq=12).model_copy(update={"boot": "another boot"})
    outputs, _ = partition.fold([stored(rebooted)])
    assert any(output.subject == "spazio.availability.n" for output in outputs)


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


def test_availability_is_published_on_a_change_and_at_least_every_four_seconds() -> None:
    partition = Partition(configured(), 0)
    messages: list[int] = []
    for second in range(20):
        load = 0.9 if second in (10, 11, 12) else 0.1
        outputs, _ = partition.fold([stored(block("n", second, cpu_util=load, cpu_pressure=load))])
        messages += [second for output in outputs if isinstance(output.message, Availability)]
    # The baseline follows within seconds, so the numbers settle for a while after the load has gone.
    assert messages[:4] == [0, 4, 8, 10]
    assert 13 in messages
    assert max(after - before for before, after in itertools.pairwise(messages)) == 4


def test_every_contract_field_of_a_first_availability_is_present_and_finite() -> None:
    outputs, _ = Partition(configured(), 0).fold([stored(block("n", 0, cpu_util=0.2, memory_util=0.3))])
    message = next(output.message for output in outputs if isinstance(output.message, Availability))
    fields = message.model_dump()
    assert [name for name, value in fields.items() if value is None] == [
        "mix",
        "classes",
        "blocks",
        "clock",
        "outvoted",
    ]
    allowed = slowdown.share(2.0, 4)
    assert message.free == pytest.approx({"cpu": 1 - 0.2 / allowed, "memory": 1 - 0.3 * 8192 / (8192 - 100)}, abs=1e-5)
    assert message.limits == pytest.approx({"cpu": 4 * allowed, "memory": (8192 - 100) << 20}, rel=1e-4)
    assert all(np.isfinite(value) for value in fields.values() if isinstance(value, float))
    assert message.lower <= message.available <= message.upper
    assert message.prior == 1.0


def test_a_node_without_pressure_information_falls_back_to_utilisation() -> None:
    message = stored(block("n", 0, cpu_util=0.4, cpu_pressure=None, memory_pressure=None, io_pressure=None))
    outputs, _ = Partition(configured(), 0).fold([message])
    usage = next(output.message for output in outputs if isinstance(output.message, Availability)).usage
    assert usage["cpu"] == pytest.approx(0.4)
    assert "memory_pressure" not in usage


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


def test_availability_is_absent_while_cpu_or_memory_is_unknown() -> None:
    partition = Partition(configured(), 0)
    outputs, _ = partition.fold([stored(block("n", 0, cpu_util=None, memory_util=0.5))])
    assert not [output for output in outputs if isinstance(output.message, Availability)]
    assert partition.withheld == 1


@pytest.mark.parametrize("util", [0.0, 0.1, 0.4])
def test_hosts_with_and_without_pressure_information_say_the_same(util: float) -> None:
    rows = []
    for pressure in (0.05 * util, None):
        message = stored(block("n", 0, cpu_util=util, cpu_pressure=pressure, procs_running=1.0))
        outputs, _ = Partition(configured(estimate_pod_memory_bytes="1"), 0).fold([message])
        rows += [output.message for output in outputs if isinstance(output.message, Availability)]
    assert rows[0].available == pytest.approx((slowdown.share(2.0, 4) - util) * 4 / 0.1, rel=1e-3)
    assert rows[1].available == rows[0].available
    assert rows[1].lower == rows[0].lower


@pytest.mark.parametrize("pods", [1, 4, 8])
@pytest.mark.parametrize("threads", [0.45, 1.0])
def test_hosts_with_and_without_pressure_information_agree_with_pods_and_on_a_full_machine(
    pods: int, threads: float
) -> None:
    partition = Partition(configured(), 0)
    rows: dict[str, Availability] = {}
    for second in range(60):
        running = pods if second >= 10 else 0
        util = min(0.05 + threads * running / 4, 1.0)
        waiting = max(0.2 + threads * running - 4 * util, 0.3 * util**2)
        for node, pressure in (("with", min(waiting, 0.98)), ("without", None)):
            made = block(
                node,
                second,
                cpu_util=util,
                cpu_pressure=pressure,
                procs_running=1 + 4 * util + waiting,
                memory_util=0.1,
                pods=float(running),
            )
            each = min(threads, (4 * util - 0.2) / max(running, 1))
            listed = [
                {"pod": f"p{index}", "workloads": "a", "cpu_cores": each, "memory_bytes": 1e8}
                for index in range(running)
            ]
            messages = [stored(made), stored(telemetry.usage(node, second + 1, listed, system_cpu_cores=0.2))]
            for output in partition.fold(messages)[0]:
                if isinstance(output.message, Availability):
                    rows[node] = output.message
    with_pressure, without = rows["with"], rows["without"]
    assert without.available == pytest.approx(with_pressure.available, rel=0.05, abs=0.05)
    assert without.lower == pytest.approx(with_pressure.lower, rel=0.05, abs=0.05)


def test_a_clock_that_was_set_back_does_not_hold_churn_on() -> None:
    partition = Partition(configured(), 0)
    partition.fold([stored(block("n", 3600, seq=0)), stored(block("n", 3601, seq=1, pods=2.0))])
    outputs, _ = partition.fold([stored(block("n", second, seq=2 + second, pods=2.0)) for second in range(10)])
    rows = [output.message for output in outputs if isinstance(output.message, Availability)]
    assert not rows[-1].churn


def test_nodes_without_pods_say_nothing_of_what_a_pod_costs() -> None:
    random = np.random.default_rng(8)
    partition = Partition(configured(), 0)
    for second in range(60):
        messages = []
        for index in range(10):
            noisy = block(f"n{index}", second, cpu_util=float(random.uniform(0.1, 0.3)), pods=float(index == 0))
            messages.append(stored(noisy))
        outputs, _ = partition.fold(messages)
        for output in outputs:
            if isinstance(output.message, Model):
                assert output.message.pods < 0.5
                partition.fold([(NAMES.model, codec.encode(output.message.model_copy(update={"scope": "global"})))])
    rows = [output.message for output in outputs if isinstance(output.message, Availability)]
    assert all(row.cost == pytest.approx(200 / 8192) for row in rows if row.binding == "memory")


def test_a_cluster_that_knows_what_a_pod_costs_tells_a_new_node() -> None:
    random = np.random.default_rng(9)
    teacher, pupil = Partition(configured(), 0), Partition(configured(), 1)
    models: list[Model] = []
    for second in range(120):
        outputs, _ = teacher.fold([stored(telemetry.noisy("old", second, second // 10 % 5, random))])
        models += [output.message for output in outputs if isinstance(output.message, Model)]
    learned = models[-1].model_copy(update={"scope": "global", "partition": None})
    outputs, _ = pupil.fold([(NAMES.model, codec.encode(learned)), stored(block("new", 0))])
    row = next(output.message for output in outputs if isinstance(output.message, Availability))
    assert row.prior == 1.0
    # On four cores a pod took 8 % of utilisation.
    assert row.available == pytest.approx(slowdown.share(2.0, 4) / 0.08, rel=0.1)


def test_a_node_that_is_silent_for_an_hour_is_forgotten() -> None:
    partition = Partition(configured(), 0)
    for second in range(0, 4200, 30):
        messages = [stored(block("here", second)), stored(block("late", second - 30 if second else 0))]
        partition.fold(messages if second < 60 else messages[:1])
    assert partition.nodes == 1
    again = Partition(configured(), 0)
    again.restore(partition.snapshot())
    assert again.nodes == 1


def test_outputs_say_which_message_they_came_of_in_the_order_of_the_stream() -> None:
    random = np.random.default_rng(8)
    messages = [
        stored(telemetry.noisy(f"n{node}", second, second // 3 % 4, random))
        for second in range(12)
        for node in range(5)
    ]
    outputs, _ = Partition(configured(), 0).fold([(NAMES.part(0, "samples", "n0"), b"garbage"), *messages])
    places = [output.index for output in outputs]
    assert places == sorted(places)
    for output in outputs:
        if isinstance(output.message, Availability):
            number = output.index - 1
            assert (output.message.node, output.message.seq) == (f"n{number % 5}", 1000 + number // 5)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("smoothed", ["true", "false"])
@given(cuts=st.lists(st.integers(0, 140), max_size=25))
@settings(max_examples=6, deadline=None)
def test_local_models_come_with_each_block_and_change_nothing_else(
    variant: str, smoothed: str, cuts: list[int]
) -> None:
    common = {"model_variant": variant, "smoothing_publish": smoothed}
    wanted = configured(model_publish_local="true", **common)
    messages = with_models(telemetry.recording(), variant)
    partition, reports = Partition(wanted, 0), []
    for start, end in itertools.pairwise([0, *sorted(cuts), len(messages)]):
        reports += lines(partition.fold(messages[start:end])[0])
    assert reports == lines(Partition(wanted, 0).fold(messages)[0])
    local = [line for line in reports if line[0].startswith("spazio.model.local.")]
    blocks = {(subject, payload) for subject, payload in messages if ".samples." in subject}
    assert len(local) == len(blocks)
    assert [line for line in reports if line not in local] == lines(
        Partition(configured(**common), 0).fold(messages)[0]
    )


def test_a_partitions_sums_are_those_of_its_local_models() -> None:
    messages = telemetry.recording(nodes=4, seconds=20)
    outputs, _ = Partition(configured(model_publish_local="true"), 0).fold(messages)
    newest: dict[str, Model] = {}
    compared = 0
    for message in (output.message for output in outputs):
        if not isinstance(message, Model):
            continue
        if message.scope == "local":
            assert message.node is not None
            newest[message.node] = message
        elif message.nodes == len(newest) == 4:
            for name in ("moment", "cost"):
                summed = np.sum([getattr(model, name) for model in newest.values()], axis=0)
                assert getattr(message, name) == pytest.approx(summed.tolist(), rel=1e-12)
            assert message.pods == pytest.approx(sum(model.pods for model in newest.values()), rel=1e-12)
            compared += 1
    assert compared > 10
    assert any(any(model.moment) for model in newest.values())


def test_a_state_made_without_local_models_goes_on_with_them() -> None:
    messages = telemetry.recording(seconds=20)
    without, going_on = Partition(configured(), 0), Partition(configured(model_publish_local="true"), 0)
    without.fold(messages[:60])
    going_on.restore(without.snapshot())
    outputs, _ = going_on.fold(messages[60:])
    whole = Partition(configured(model_publish_local="true"), 0).fold(messages)[0]
    assert lines(outputs) == lines(whole)[-len(outputs) :]
