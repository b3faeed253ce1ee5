"""Laws of the fold: grouping, restarts and repetition change nothing; garbage harms nobody else."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processors.estimation import slowdown
from processors.partition.output import Output
from processors.partition.partition import Partition
from schemas import codec
from schemas.messages.estimate import Availability, Model
from tests.support.processors import telemetry
from tests.support.processors.telemetry import NAMES, block, stored
from tests.unit.processors.partition.models import VARIANTS, configured, lines, with_models


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
@pytest.mark.parametrize(("nodes", "seconds", "seed"), [(4, 8, 3), (5, 10, 5)])
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
