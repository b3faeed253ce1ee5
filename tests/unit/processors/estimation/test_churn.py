"""Containers that come and go: windows open and close, pods are counted right, and what a pod costs stays known."""

import itertools
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.estimation import churn, slowdown
from processors.partition.output import Output
from processors.partition.partition import Partition
from schemas import codec
from schemas.messages.base import Message
from schemas.messages.estimate import Availability
from schemas.settings import Settings, load
from tests.support.processors.telemetry import METRICS, block, event, stored

SECOND = 1_000_000


def configured(**flags: str) -> Settings:
    return load({"model_global_weight": "0", **flags}, environ={})


def rows_of(outputs: list[Output]) -> list[Availability]:
    return [output.message for output in outputs if isinstance(output.message, Availability)]


@dataclass
class Life:
    """One container: running from `begin` to `end`, seconds; created `ahead` of its first instruction."""

    begin: float
    end: float
    ahead: float
    cost: float


@dataclass
class Scripted:
    """A node whose CPU is y0 + what its containers cost + what each of them takes for 0.2 s while it starts or ends."""

    seconds: int
    lives: list[Life] = field(default_factory=list)
    spike: float = 0.15
    seed: int = 1

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def run(self, begin: float, end: float, *, count: int = 1, over: float = 0.3, cost: float = 0.04) -> None:
        """Start containers within `over` seconds; they end as close together."""
        for _ in range(count):
            shift = float(self._random.uniform(0, over))
            self.lives.append(Life(begin + shift, end + shift, float(self._random.uniform(0.03, 0.3)), cost))

    def running(self, now: float) -> int:
        return sum(life.begin - life.ahead <= now < life.end for life in self.lives)

    def messages(self, *, events: bool = True) -> list[tuple[str, bytes]]:
        """Return the stream in order of publishing: events at once, blocks a moment after their last sample."""
        timed: list[tuple[float, Message]] = [
            (second + 1.0 + float(self._random.uniform(0, 0.02)), self._block(second)) for second in range(self.seconds)
        ]
        for number, life in enumerate(self.lives if events else ()):
            for kind, at in (
                ("created", life.begin - life.ahead),
                ("started", life.begin + 0.003),
                ("exited", life.end),
            ):
                happened = event("n", at, kind, container=f"c{number}")
                timed.append((at + float(self._random.uniform(0.001, 0.01)), happened))
        return [stored(message) for _, message in sorted(timed, key=lambda pair: pair[0])]

    def _block(self, second: int) -> Message:
        values = np.zeros((10, len(METRICS)))
        for sample in range(10):
            now = second + sample / 10
            usage = 0.05 + float(self._random.normal(0, 0.002))
            for life in self.lives:
                usage += life.cost * (life.begin <= now < life.end)
                usage += self.spike * (0 <= now - life.begin < 0.2) + self.spike / 2 * (0 <= now - life.end < 0.2)
            values[sample, METRICS.index("cpu_util")] = np.clip(2 * usage, 0, 1)
            values[sample, METRICS.index("cpu_pressure")] = np.clip(2 * usage - 1, 0, 1)
        # The agent counts once a second, and repeats it until it counts again.
        values[:, METRICS.index("pods")] = self.running(second + 0.05)
        values[:, METRICS.index("memory_util")] = 0.1
        return block("n", second).model_copy(update={"values": np.round(values, 4).ravel().tolist()})


def in_force(rows: list[Availability], second: int) -> Availability:
    return [row for row in rows if row.seq <= 1000 + second][-1]


@pytest.mark.parametrize("count", [1, 5, 20])
def test_pods_are_counted_right_at_every_second_that_no_churn_is_declared_in(count: int) -> None:
    node = Scripted(60, spike=0.02)
    node.run(-10, 1000, count=2, cost=0.02)
    node.run(12.4, 30.7, count=count, cost=0.01)
    node.run(45.95, 1000, count=count, cost=0.01)
    rows = rows_of(Partition(configured(), 0).fold(node.messages())[0])
    declared = 0
    for second in range(60):
        row = in_force(rows, second)
        declared += row.churn
        if not row.churn:
            assert row.pods == node.running(second + 0.9), second
    assert in_force(rows, 29).pods == in_force(rows, 59).pods == 2 + count
    assert 9 <= declared <= 16
    for quiet in (11, 20, 29, 40, 44, 55):
        assert not in_force(rows, quiet).churn
        assert in_force(rows, quiet).mode == "signal"
    for shaken in (12, 13, 31, 32, 46, 47):
        assert in_force(rows, shaken).churn
        assert in_force(rows, shaken).mode == "capacity"


def learned_before_and_after_a_burst(*, hold: bool, events: bool = True) -> tuple[float, float]:
    node = Scripted(170, spike=0.1)
    node.run(-10, 1000, count=2)
    for step in range(5):  # pods come one at a time and stay for a while, so that their cost can be learned
        node.run(20 + 20 * step, 1000, over=0.1)
    node.run(140.2, 141.6, count=20, over=2.0, cost=0.004)
    rows = rows_of(Partition(configured(estimate_hold_in_churn=str(hold)), 0).fold(node.messages(events=events))[0])
    assert not in_force(rows, 139).churn
    assert in_force(rows, 141).churn
    assert not in_force(rows, 160).churn
    return in_force(rows, 139).cost, in_force(rows, 160).cost


@pytest.mark.slow
def test_a_burst_of_twenty_short_containers_moves_the_learned_cost_by_less_than_five_percent() -> None:
    before, after = learned_before_and_after_a_burst(hold=True)
    assert before == pytest.approx(0.08 / slowdown.share(2.0, 4), rel=0.05)
    held = abs(after / before - 1)
    before, after = learned_before_and_after_a_burst(hold=False)
    moved = abs(after / before - 1)
    print(f"learned cost moved by {held:.1%} with holding still, by {moved:.1%} without")
    assert held < 0.05
    assert moved > 0.1


def test_while_containers_come_and_go_availability_rests_on_what_was_learned() -> None:
    node = Scripted(60, spike=0.2)
    node.run(-10, 1000, count=4)
    node.run(40.5, 42.0, count=10, over=0.1, cost=0.0)
    rows = rows_of(
        Partition(configured(estimate_pod_cores="0.32", estimate_pod_memory_bytes="1"), 0).fold(node.messages())[0]
    )
    calm = in_force(rows, 39)
    assert calm.available == pytest.approx((slowdown.share(2.0, 4) - 0.1 - 4 * 0.08) / 0.08, rel=0.03)
    for second in range(40, 43):
        row = in_force(rows, second)
        assert row.churn
        assert row.available == pytest.approx(max(0.0, calm.available - (row.pods - calm.pods)), abs=0.6)


def test_the_block_with_the_event_in_it_and_what_smoothing_carries_on_are_held() -> None:
    def churned(happened: float, **flags: str) -> list[int]:
        partition = Partition(configured(estimate_report_seconds="0.1", **flags), 0)
        messages = [stored(block("n", second)) for second in range(10)]
        messages.insert(int(happened), stored(event("n", happened)))
        return [row.seq - 1000 for row in rows_of(partition.fold(messages)[0]) if row.churn]

    # Settled at 5.3; the seven samples behind the first smoothed one of block 5 begin at 4.4.
    assert churned(3.3) == [3, 4, 5]
    # Settled at 5.7; those of block 6 begin at 5.4, though the window has ended when the block begins.
    assert churned(3.7) == [3, 4, 5, 6]
    assert churned(3.7, smoothing_form="dynamic_ema") == [3, 4, 5]
    assert churned(3.7, estimate_settle_seconds="0.2") == [3, 4]
    assert churned(4.0) == [4, 5, 6]


@pytest.mark.parametrize(
    "ignored",
    [
        event("n", 3.5, "deleted"),
        event("n", 3.5, "started", sandbox=True),
        event("n", 3.5, "exited", sandbox=True),
        event("stranger", 3.5),
        event("n", 70.0),
        event("n", 3.5, boot="another boot"),
    ],
)
def test_an_event_that_says_nothing_of_now_opens_no_window(ignored: Message) -> None:
    partition = Partition(configured(), 0)
    messages = [stored(block("n", second)) for second in range(10)]
    messages.insert(3, stored(ignored))
    rows = rows_of(partition.fold(messages)[0])
    assert not any(row.churn for row in rows)
    assert partition.ignored == (getattr(ignored, "event") == "created")  # noqa: B009 # what opens none anyway is not counted


def test_a_pause_container_forewarns_of_its_pod() -> None:
    messages = [stored(block("n", second)) for second in range(6)]
    messages.insert(3, stored(event("n", 3.5, sandbox=True)))
    assert any(row.churn for row in rows_of(Partition(configured(), 0).fold(messages)[0]))


def test_an_agent_that_tells_no_events_has_windows_from_its_pod_count() -> None:
    node = Scripted(40)
    node.run(20.5, 1000, count=3)
    rows = rows_of(Partition(configured(), 0).fold(node.messages(events=False))[0])
    assert next(row.seq - 1000 for row in rows if row.churn) == 21
    assert not in_force(rows, 30).churn


def test_events_that_come_twice_or_in_another_order_change_no_byte() -> None:
    node = Scripted(50)
    node.run(20.5, 25, count=6, over=0.4)
    messages = node.messages()

    def lines(stream: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        outputs, _ = Partition(configured(), 0).fold(stream)
        return [(output.subject, codec.encode(output.message)) for output in outputs]

    shuffled: list[tuple[str, bytes]] = []
    for is_event, group in itertools.groupby(messages, key=lambda message: ".containers." in message[0]):
        part = list(group)
        shuffled += [*reversed(part), *part] if is_event else part
    assert len(shuffled) > len(messages)
    assert lines(shuffled) == lines(messages)


def test_a_reboot_ends_the_windows_of_the_boot_before() -> None:
    partition = Partition(configured(), 0)
    partition.fold([stored(block("n", 0)), stored(event("n", 0.9))])
    again = [block("n", 1 + second, seq=1000 + second).model_copy(update={"boot": "next"}) for second in range(3)]
    assert not any(row.churn for row in rows_of(partition.fold([stored(item) for item in again])[0]))


@given(st.lists(st.integers(0, 100 * SECOND), max_size=30), st.randoms(use_true_random=False))
def test_windows_are_the_same_in_any_order_and_however_often_events_are_reported(
    times: list[int], random: object
) -> None:
    settle = 2 * SECOND
    shuffled = times + times[: len(times) // 2]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    forward: churn.Windows = ()
    other: churn.Windows = ()
    for at_us in times:
        forward = churn.opened(forward, at_us, settle_us=settle)
    for at_us in shuffled:
        other = churn.opened(other, at_us, settle_us=settle)
    assert forward == other
    assert all(after[0] - before[1] > settle for before, after in itertools.pairwise(forward))
    for at_us in times:
        assert churn.covers(forward, at_us, at_us + 1, settle_us=settle)


@pytest.mark.slow
def test_windows_do_not_pile_up() -> None:
    partition = Partition(configured(estimate_settle_seconds="0.001"), 0)
    for second in range(200):
        partition.fold([stored(block("n", second)), *(stored(event("n", second + part / 10)) for part in range(10))])
    assert len(partition._state.admission._windows["n"]) <= 64
    partition.fold([stored(block("n", second)) for second in range(200, 300)])
    assert not partition._state.admission._windows


def test_churn_that_does_not_end_is_estimated_from_fresh_usage_again() -> None:
    node = Scripted(80, spike=0.0)
    node.run(-10, 1000, count=4)
    for second in range(10, 70):  # one short container after the other, and a load that no pod count tells of
        node.run(second, second + 0.5, cost=0.3 if second >= 30 else 0.0, over=0.0)
    rows = rows_of(Partition(configured(), 0).fold(node.messages())[0])
    assert {row.mode for row in rows if 1015 <= row.seq <= 1035} == {"capacity"}
    late = [row for row in rows if 1045 <= row.seq <= 1065]
    assert {row.mode for row in late} == {"signal"}
    assert all(row.churn for row in late)
    assert in_force(rows, 78).mode == "signal"
    assert not in_force(rows, 78).churn
