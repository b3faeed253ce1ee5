"""Sums by workload of one partition: which pods count, and when a period is over."""

import json
from typing import Any

import pytest

from processors.forecast import share
from processors.forecast.sums import Greatest, Sum, Sums, Workload, add
from schemas.messages.base import Message
from schemas.messages.telemetry import MAXIMUM_PODS, PodUsageBlock
from tests.support.processors.mix import pod
from tests.support.processors.telemetry import START, facts, usage

WEB = Workload("shop", "Deployment", "web")
FIRST = START // 15 * 15


def owned(uid: str, *, version: int = 1, node: str = "n", **fields: Any) -> Message:
    defaults = {"owner_kind": "Deployment", "owner": "web", "requests": {"cpu": 0.5, "memory": 1e9}}
    ready = {"ready_us": (START + 8) * 1_000_000, "initialization_seconds": 8.0}
    return facts(node, uid, "shop/web", version, **{**defaults, **ready, **fields})


def summed(messages: list[Message], *, sums: Sums | None = None) -> dict[Workload, Sum]:
    """Return what is published of the period in which these came."""
    sums = sums or Sums(seconds=15)
    sums.end(FIRST)
    for message in messages:
        if isinstance(message, PodUsageBlock):
            sums.take(message)
        else:
            sums.learn(message)  # type: ignore[arg-type]
    reports = sums.end(FIRST + 15)
    assert reports is not None
    return reports[1]


def test_pods_of_a_workload_are_added_up() -> None:
    listed = [pod("u1", None, 0.25, 1e8), pod("u2", None, 0.5, 2e8)]
    result = summed([owned("u1"), owned("u2", initialization_seconds=12.0), usage("n", 1, listed)])
    greatest = (Greatest(0.75, 2), Greatest(3e8, 2))
    assert result == {WEB: Sum(2, 2, (0.75, 3e8), (1.0, 2e9), 2, 20.0, nodes=1, measured=2, greatest=greatest)}


def test_cpu_is_the_mean_of_the_period_and_memory_the_last_reading() -> None:
    blocks = [usage("n", second, [pod("u1", None, cores, 1e8 * second)]) for second, cores in ((1, 0.25), (2, 0.75))]
    assert summed([owned("u1"), *blocks])[WEB].used == (0.5, 2e8)


@pytest.mark.parametrize(
    "fields",
    [
        {"deleted": True},
        {"phase": "Succeeded"},
        {"phase": "Failed"},
        {"owner": None},
        {"owner_kind": None},
        {"owner_kind": "DaemonSet"},
        {"owner_kind": "Job"},
        {"owner_kind": "Node"},
        {"node": "-"},
    ],
    ids=str,
)
def test_a_pod_that_nobody_scales_is_left_out(fields: dict[str, Any]) -> None:
    assert summed([owned("u1", **fields), usage("n", 1, [pod("u1", None, 0.5, 1e8)])]) == {}


def test_a_pod_without_facts_is_left_out_and_one_without_a_container_or_a_measurement_if_it_is_not_ready() -> None:
    listed = [pod("u1", None, 0.5, 1e8, containers=0), pod("u2", None, None, None), pod("u3", "shop/web", 0.5, 1e8)]
    assert summed([owned("u1", ready_us=None), owned("u2", ready_us=None), usage("n", 1, listed)]) == {}


@pytest.mark.parametrize("silent", ["node", "pod", "other"])
def test_ready_pods_that_nobody_measures_count_and_use_as_much_as_the_others(silent: str) -> None:
    where = "elsewhere" if silent == "node" else "n"
    listed = [pod("u1", None, 0.25, 1e8)] + ([pod("u2", None, None, None)] if silent == "pod" else [])
    result = summed([owned("u1"), owned("u2", node=where), usage("n", 1, listed)])[WEB]
    assert (result.pods, result.ready, result.measured, result.used) == (2, 2, 1, (0.25, 1e8))
    assert result.requested == (1.0, 2e9)
    assert share.bounded({WEB: result})[WEB].used == (0.5, 2e8)


def test_a_workload_of_which_nothing_is_measured_has_no_usage_at_all() -> None:
    result = summed([owned("u1", node="elsewhere"), usage("n", 1, [])])
    assert result[WEB].ready == 1
    assert share.bounded(result) == {}


def test_a_pod_that_is_being_deleted_still_bears_load_but_will_not_stay() -> None:
    listed = [pod("u1", None, 0.25, 1e8), pod("u2", None, 0.5, 2e8)]
    result = summed([owned("u1"), owned("u2", terminating=True), usage("n", 1, listed)])
    greatest = (Greatest(0.75, 2), Greatest(3e8, 2))
    assert result[WEB] == Sum(1, 1, (0.75, 3e8), (0.5, 1e9), 1, 8.0, nodes=1, measured=2, greatest=greatest)


def test_only_ready_pods_have_an_initialization_time() -> None:
    listed = [pod(uid, None, 0.25, 1e8) for uid in ("u1", "u2", "u3")]
    reported = [owned("u1", ready_us=None), owned("u2", initialization_seconds=None), owned("u3")]
    result = summed([*reported, usage("n", 1, listed)])[WEB]
    assert (result.pods, result.ready, result.initialized, result.initialization_seconds) == (3, 2, 1, 8.0)


def test_a_pod_that_waited_for_days_counts_as_one_that_waited_for_an_hour() -> None:
    reported = [owned("u1"), owned("u2", initialization_seconds=1e6)]
    result = summed([*reported, usage("n", 1, [pod(uid, None, 0.25, 1e8) for uid in ("u1", "u2")])])[WEB]
    assert result.initialization_seconds == 3608.0


def test_an_older_version_of_a_pod_changes_nothing_and_a_newer_one_does() -> None:
    listed = [pod("u1", None, 0.25, 1e8)]
    older = summed([owned("u1", version=5), owned("u1", version=4, owner="old"), usage("n", 1, listed)])
    assert set(older) == {WEB}
    newer = summed([owned("u1", version=5), owned("u1", version=6, owner="renamed"), usage("n", 1, listed)])
    assert set(newer) == {Workload("shop", "Deployment", "renamed")}


def test_a_pod_that_is_not_ready_and_was_not_heard_of_in_a_period_is_not_in_it() -> None:
    sums = Sums(seconds=15)
    assert summed([owned("u1", ready_us=None), usage("n", 1, [pod("u1", None, 0.25, 1e8)])], sums=sums)
    assert sums.end(FIRST + 30) == ((FIRST + 30) * 1_000_000, {})


def test_a_period_ends_once_and_the_first_one_which_began_elsewhere_is_not_reported() -> None:
    sums = Sums(seconds=15)
    ends = [second for second in range(FIRST + 7, FIRST + 60) if sums.end(second) is not None]
    assert ends == [FIRST + 14, FIRST + 29, FIRST + 44, FIRST + 59]
    back = sums.end(FIRST - 600)
    assert back == ((FIRST - 600) * 1_000_000, {})


def test_a_restored_state_says_the_same() -> None:
    sums, other = Sums(seconds=15), Sums(seconds=15)
    for kept in (sums, other):
        kept.end(FIRST)
    for index in range(5):
        sums.learn(owned(f"u{index}", version=index + 1))  # type: ignore[arg-type]
        sums.take(usage("n", index, [pod(f"u{index}", None, 0.1 * index, 1e8 / 3)]))
    other.load(json.loads(json.dumps(sums.dump())))
    assert other.dump() == sums.dump()
    assert other.end(FIRST + 15) == sums.end(FIRST + 15)


def test_under_another_period_the_one_that_goes_on_begins_again() -> None:
    sums, other = Sums(seconds=15), Sums(seconds=30)
    summed([owned("u1"), usage("n", 1, [pod("u1", None, 0.25, 1e8)])], sums=sums)
    other.load(json.loads(json.dumps(sums.dump())))
    assert other.end(FIRST + 29) is None


def test_names_do_not_pile_up() -> None:
    sums = Sums(seconds=15)
    for index in range(MAXIMUM_PODS + 100):
        sums.learn(owned(f"u{index}"))  # type: ignore[arg-type]
        sums.learn(owned(f"v{index}", node=f"n{index}"))  # type: ignore[arg-type]
        sums.learn(owned(f"v{index}", node=f"n{index}", version=2, deleted=True))  # type: ignore[arg-type]
    assert {node: len(pods) for node, pods in sums.dump()["pods"].items()} == {"n": MAXIMUM_PODS}
    sums.take(usage("n", 1, [pod("u2000", None, 0.5, 1e8)]))
    sums.forget({"n"}, {"n"})
    assert (len(sums.dump()["pods"]["n"]), sums.dump()["used"]) == (MAXIMUM_PODS, {})
    sums.forget({"n", "unknown"}, set())
    assert (sums.dump()["pods"], sums.dump()["used"]) == ({}, {})


@pytest.mark.parametrize("cores", [0.5, None], ids=["measured", "not all measured"])
def test_names_that_a_node_invents_within_a_period_do_not_pile_up_and_displace_no_pod(cores: float | None) -> None:
    sums = Sums(seconds=15)
    sums.end(FIRST)
    sums.learn(owned("u1"))  # type: ignore[arg-type]
    for second in range(4):
        sums.take(usage("n", second, [pod(f"{second}-{index}", None, cores, 1e8) for index in range(MAXIMUM_PODS)]))
    sums.take(usage("n", 4, [pod("u1", None, 0.25, 2e8)]))
    assert len(sums.dump()["used"]["n"]) == MAXIMUM_PODS + 1
    reports = sums.end(FIRST + 15)
    assert reports is not None
    assert reports[1][WEB].used == (0.25, 2e8)


def test_partitions_add_up_in_any_number() -> None:
    left = Sum(2, 1, (1.0, 2.0), (3.0, 4.0), 1, 5.0, 2, 2, (Greatest(0.75, 1), Greatest(1.0, 1)))
    right = Sum(1, 1, (0.5, 1.5), (1.0, 1.0), 1, 7.0, 1, 1, (Greatest(0.5, 1), Greatest(1.5, 1)))
    greatest = (Greatest(0.75, 1), Greatest(1.5, 1))
    for order in ([{WEB: left}, {}, {WEB: right}], [{WEB: right}, {WEB: left}]):
        assert add(order) == {WEB: Sum(3, 2, (1.5, 3.5), (4.0, 5.0), 2, 12.0, 3, 3, greatest)}
    assert add([]) == {}
