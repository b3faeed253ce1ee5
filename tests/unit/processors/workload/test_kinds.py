"""Which kind a class is, and what its pods want, from what they use, wait for, and are kept from by a quota."""

from collections.abc import Callable
from typing import Any

import pytest

from processors.partition.partition import Partition
from schemas.messages.estimate import Availability
from schemas.settings import load
from tests.support.processors.telemetry import block, stored, usage

CPUS = 4
REST = 0.2
SECONDS = 60
OF_BLOCKS = ("age", "kind")  # of pods, in lists of their own
Pods = Callable[[int], list[dict[str, Any]]]


def reports(pods: Pods, *, seconds: int = SECONDS, rest: Callable[[int], float] = lambda _: REST) -> list[Availability]:
    """Return what is published of one node of 4 CPUs, second by second; pods begin in the tenth."""
    partition = Partition(load({"model_global_weight": "0", "estimate_report_seconds": "0.5"}, environ={}), 0)
    rows: list[Availability] = []
    for second in range(seconds):
        running = pods(second) if second >= 10 else []
        used = sum(pod["cpu_cores"] for pod in running)
        waits = sum(pod.get("threads", 0.0) or pod["cpu_pressure"] for pod in running)
        util = min((rest(second) + used) / CPUS, 1.0)
        made = block(
            "n",
            second,
            cpu_util=util,
            cpu_pressure=min(waits, 0.99),
            procs_running=1 + CPUS * util + waits,
            memory_util=0.1,
            pods=float(len(running)),
        )
        listed = [
            {"memory_bytes": 1e8} | {name: value for name, value in pod.items() if name not in ("threads", *OF_BLOCKS)}
            for pod in running
        ]
        fields = {f"{name}s": [pod[name] for pod in running] for name in OF_BLOCKS if running and name in running[0]}
        messages = [stored(made), stored(usage("n", second + 1, listed, system_cpu_cores=rest(second), **fields))]
        rows += [each.message for each in partition.fold(messages)[0] if isinstance(each.message, Availability)]
    return rows


def alike(count: int, workload: str = "a", **columns: Any) -> Pods:
    values: dict[str, Any] = {"cpu_pressure": 0.0, **columns}
    return lambda _: [{"pod": f"{workload}{index}", "workloads": workload, **values} for index in range(count)]


def kind(row: Availability, workload: str = "a") -> str | None:
    assert row.classes is not None
    return row.classes[workload].kind


def threads(row: Availability, workload: str = "a") -> float:
    """Return of how many threads that never sleep a pod of a soaking class takes the place."""
    assert row.classes is not None
    return (row.classes[workload].cpu or 0.0) * 2 * CPUS


@pytest.mark.slow
@pytest.mark.parametrize(("used", "waited"), [(1.0, 0.0), (0.85, 0.15), (0.5, 0.49)])
def test_a_thread_that_never_sleeps_is_known_by_what_it_uses_and_waits_for_itself(used: float, waited: float) -> None:
    rows = reports(alike(2, cpu_cores=used, cpu_pressure=waited))
    assert kind(rows[-1]) == "soaking"


@pytest.mark.slow
def test_a_service_that_waits_now_and_then_stays_a_service() -> None:
    def pods(second: int) -> list[dict[str, Any]]:
        busy = second % 5 == 0  # one second of five it has no pause
        return alike(2, cpu_cores=0.6 if busy else 0.3, cpu_pressure=0.4 if busy else 0.02)(second)

    assert kind(reports(pods)[-1]) == "serving"


def test_services_whose_mean_uses_a_whole_core_are_no_batch() -> None:
    def pods(second: int) -> list[dict[str, Any]]:
        busy = alike(1, cpu_cores=1.4 if second % 2 else 0.6)(second)
        return [*busy, {**alike(1, cpu_cores=0.6 if second % 2 else 1.4)(second)[0], "pod": "b"}]

    assert kind(reports(pods)[-1]) == "serving"


def test_threads_that_never_sleep_are_batch_also_where_pods_have_different_numbers_of_them() -> None:
    def pods(second: int) -> list[dict[str, Any]]:
        return [*alike(1, cpu_cores=1.0)(second), {**alike(1, cpu_cores=2.0)(second)[0], "pod": "b"}]

    rows = reports(pods)
    assert kind(rows[-1]) == "soaking"
    assert rows[-1].available == pytest.approx((2 * (CPUS - REST) - 3) / 1.5, rel=0.1)


@pytest.mark.slow
def test_a_bad_second_now_and_then_does_not_make_a_service_of_batch() -> None:
    def pods(second: int) -> list[dict[str, Any]]:
        stolen = second % 6 == 0  # the hypervisor took time, which is neither use nor waiting
        return alike(2, cpu_cores=0.6 if stolen else 1.0)(second)

    assert all(kind(row) == "soaking" for row in reports(pods)[-20:])


@pytest.mark.slow
def test_pods_with_a_quota_want_what_it_allows_and_not_what_they_wait_for_within_it() -> None:
    limited = reports(alike(4, cpu_cores=0.3, cpu_pressure=0.95, throttled=0.6))[-1]
    assert kind(limited) == "soaking"
    assert limited.classes is not None
    assert limited.classes["a"].cpu == pytest.approx(0.3 / (2 * CPUS), rel=0.05)


@pytest.mark.slow
def test_a_quota_holds_pods_back_also_where_what_they_wait_for_on_several_cpus_is_not_measured_in_full() -> None:
    def pods(second: int) -> list[dict[str, Any]]:
        if second < 35:
            return alike(1, cpu_cores=0.3, cpu_pressure=0.7, throttled=0.7)(second)
        return alike(5, cpu_cores=0.3 if second % 2 else 0.297, cpu_pressure=0.35, throttled=0.42)(second)

    rows = reports(pods, seconds=70)
    assert all(kind(row) == "soaking" for row in rows[-20:])
    assert rows[-1].available == pytest.approx((2 * CPUS - 5 * 0.3 - REST) / 0.3, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("quota", "few", "many"), [(0.3, 8, 16), (1.0, 2, 4)])
def test_a_quota_is_remembered_where_others_keep_pods_from_it(quota: float, few: int, many: int) -> None:
    def pods(second: int) -> list[dict[str, Any]]:
        if second < 40:
            return alike(few, cpu_cores=quota, cpu_pressure=0.9, throttled=0.6)(second)
        return alike(many, cpu_cores=3.8 / many, cpu_pressure=0.75, throttled=0.0)(second)

    rows = reports(pods, seconds=80)
    assert rows[-1].classes is not None
    assert rows[-1].classes["a"].cpu == pytest.approx(quota / (2 * CPUS), rel=0.05)
    wanted = many * quota + REST
    assert rows[-1].available == pytest.approx((2 * CPUS - wanted) / quota, abs=1)


@pytest.mark.slow
def test_threads_that_never_sleep_demand_a_core_each_also_where_services_wait_for_most_of_what_is_missing() -> None:
    def pods(second: int) -> list[dict[str, Any]]:
        full = second >= 40
        services = alike(9, "web", cpu_cores=0.1, cpu_pressure=0.4 if full else 0.0, threads=0.01)(second)
        batch = alike(4, "batch", cpu_cores=0.7, cpu_pressure=0.29) if full else alike(2, "batch", cpu_cores=1.0)
        return services + batch(second)

    rows = reports(pods, seconds=90)
    assert [threads(row, "batch") for row in rows[-45:]] == pytest.approx([1.0] * 45, rel=0.02)


@pytest.mark.slow
def test_threads_demand_a_core_each_also_where_the_hypervisor_takes_time_of_a_full_machine() -> None:
    def pods(second: int) -> list[dict[str, Any]]:
        if second < 40:
            return alike(1, cpu_cores=1.0)(second)
        return alike(6, cpu_cores=0.62, cpu_pressure=0.25)(second)  # a core, less what was stolen

    assert [threads(row) for row in reports(pods, seconds=90)[-45:]] == pytest.approx([1.0] * 45, rel=0.02)


@pytest.mark.slow
def test_threads_that_begin_to_sleep_are_followed_on_a_full_machine() -> None:
    def pods(second: int) -> list[dict[str, Any]]:
        if second < 40:
            return alike(2, cpu_cores=1.0)(second)
        others = alike(8, "b", cpu_cores=0.43, cpu_pressure=0.5)(second)
        return others + alike(4, cpu_cores=0.1, cpu_pressure=0.02)(second)

    assert 0 < threads(reports(pods, seconds=120)[-1]) < 0.3


@pytest.mark.slow
def test_a_class_whose_pods_have_more_threads_than_before_is_followed_on_a_full_machine() -> None:
    def pods(second: int) -> list[dict[str, Any]]:
        if second < 40:
            return alike(1, cpu_cores=1.0)(second)
        return alike(4, cpu_cores=0.95, cpu_pressure=0.6, threads=1.05)(second)  # two threads each

    assert threads(reports(pods, seconds=120)[-1]) > 1.4


@pytest.mark.slow
def test_what_is_in_no_pod_takes_its_time_from_threads_that_never_sleep_and_no_more() -> None:
    rows = reports(alike(4, cpu_cores=0.8, cpu_pressure=0.19), rest=lambda _: 0.8)
    assert rows[-1].available == pytest.approx(2 * (CPUS - 0.8) - 4, abs=0.15)


@pytest.mark.slow
def test_a_pod_of_more_threads_than_cores_slows_down_others_as_much_as_all_cores_do() -> None:
    rows = reports(alike(1, cpu_cores=3.8, cpu_pressure=0.99, threads=4.2))
    assert rows[-1].classes is not None
    assert rows[-1].classes["a"].cpu <= 0.5 + 1e-6
    assert rows[-1].available == pytest.approx(0.9, abs=0.3)


@pytest.mark.parametrize(("used", "expected"), [(3.4, "soaking"), (2.7, "serving")])
def test_a_pod_that_wants_all_cpus_beside_services_is_no_service(used: float, expected: str) -> None:
    services = alike(4, "web", cpu_cores=(CPUS - REST - used) / 4, cpu_pressure=0.02, threads=0.02)
    greedy = alike(1, cpu_cores=used, cpu_pressure=0.8, threads=0.8)  # 4.2 or 3.5 in all
    assert kind(reports(lambda second: services(second) + greedy(second))[-1]) == expected


@pytest.mark.slow
def test_a_job_of_a_second_beside_the_pods_takes_little_room_and_not_for_long() -> None:
    rows = reports(alike(2, cpu_cores=0.3), rest=lambda second: 3.0 if second == 40 else REST)
    at = {row.seq - 1000: row.available for row in rows}
    assert at[42] > 0.6 * at[39]
    assert at[55] == pytest.approx(at[39], rel=0.15)


@pytest.mark.slow
def test_threads_that_begin_to_sleep_beside_others_on_a_full_machine_become_a_service() -> None:
    def pods(second: int) -> list[dict[str, Any]]:
        if second < 40:
            return alike(2, cpu_cores=1.0)(second)
        others = alike(4, "b", cpu_cores=0.85, cpu_pressure=0.14, kind="batch")(second)
        return others + alike(4, cpu_cores=0.1, cpu_pressure=0.02, kind=None)(second)

    assert kind(reports(pods, seconds=70)[-1]) == "serving"


@pytest.mark.slow
@pytest.mark.parametrize("start", [{"cpu_cores": 0.99}, {"cpu_cores": 0.05, "throttled": 0.5}])
def test_how_pods_start_does_not_say_of_which_kind_those_are_that_run(start: dict[str, float]) -> None:
    quiet = {"cpu_cores": 0.05, "throttled": 0.0}

    def pods(second: int) -> list[dict[str, Any]]:
        running = alike(3, "web", **quiet, age=100 + second)(second)
        starting = [
            pod | {"pod": f"new{index}"}
            for index, pod in enumerate(alike(3, "web", **(start if second < 52 else quiet), age=second - 40)(second))
        ]
        return running + (starting if second >= 40 else [])

    rows = reports(pods, seconds=75)
    before = max(row.lower for row in rows if row.seq < 1040)
    after = [row for row in rows if row.seq >= 1041]
    assert {kind(row, "web") for row in after} == {"serving"}
    assert max(row.lower for row in after) <= 1.1 * before


@pytest.mark.slow
def test_pods_that_need_less_than_their_quota_are_followed_where_no_other_pod_keeps_them_from_it() -> None:
    def pods(second: int) -> list[dict[str, Any]]:
        if second < 40:
            return alike(4, cpu_cores=0.5, cpu_pressure=0.9, throttled=0.6, kind="batch")(second)
        return alike(4, cpu_cores=0.02, cpu_pressure=0.01, throttled=0.0, kind="batch")(second)

    assert threads(reports(pods, seconds=100)[-1]) == pytest.approx(0.02, rel=0.2)


def test_starts_take_no_more_than_their_pods_where_no_ages_are_reported() -> None:
    rows = reports(lambda second: alike(4 if second < 40 else min(second - 35, 8), cpu_cores=0.3)(second), seconds=50)
    assert min(row.available for row in rows if row.seq >= 1040) > 1.0


@pytest.mark.slow
def test_services_that_keep_a_machine_full_for_minutes_are_no_batch() -> None:
    def pods(second: int) -> list[dict[str, Any]]:
        full = second >= 100
        return alike(5, cpu_cores=0.76 if full else 0.6, cpu_pressure=0.22 if full else 0.02)(second)

    rows = reports(pods, seconds=900)[-700:]
    assert {kind(row) for row in rows} == {"serving"}
    assert {row.lower for row in rows} == {0}
