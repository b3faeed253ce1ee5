"""What the cluster remembers of classes whose pods have ended."""

import numpy as np
import pytest

from processors.partition.partition import Partition
from processors.workload.cluster import attested as classes
from processors.workload.cluster.attested import Attested, evident
from processors.workload.cluster.voting import cluster_of
from schemas import codec
from schemas.messages.estimate import MAXIMUM_CLASSES, ClassSum, Model
from tests.support.processors.mix import configured, rows_of, sampled, share_of
from tests.support.processors.telemetry import NAMES, stored

HOUR_US = 3_600_000_000


def model_of(at_us: int, classes: dict[str, ClassSum], voting: int = 3) -> Model:
    features = list(configured().model.features)
    return Model(
        scope="global", at_us=at_us, features=features, moment=[0.0] * 15, cost=[0.0] * 5, pods=0, nodes=3,
        classes=classes or None, voting=voting,
    )  # fmt: skip


def remember(before: Attested, model: Model) -> Attested:
    return classes.remember(before, model, evident(model.classes or {}, ()))


@pytest.mark.parametrize(("pods", "nodes", "voting"), [(5, 3, 3), (5, 1, 2), (0.5, 3, 3)])
def test_a_class_whose_pods_have_ended_is_remembered_for_a_day(pods: float, nodes: int, voting: int) -> None:
    jobs = ClassSum(pods=pods, cpu=pods, memory=pods * 1e9, nodes=nodes)
    attested = remember({}, model_of(0, {"job": jobs}, voting))
    for hours in (1, 25):
        attested = remember(attested, model_of(hours * HOUR_US, {}, voting))
        cluster = cluster_of({}, attested, lambda _: 7)
        assert (cluster.label.tolist(), cluster.pods.tolist(), cluster.cost.tolist()) == ([7], [0], [[1, 1e9]])
        assert np.isnan(cluster.fair).all()
    assert not remember(attested, model_of(25 * HOUR_US + 1, {}, voting))


def test_what_fewer_than_three_of_several_nodes_attest_is_not_remembered() -> None:
    two = ClassSum(pods=5, cpu=5, memory=5e9, nodes=2)
    assert not remember({}, model_of(0, {"a": two}))
    attested = remember({}, model_of(0, {"a": two.model_copy(update={"nodes": 3, "cpu": 9})}))
    assert remember(attested, model_of(1, {"a": two}))["a"][1].cpu == 9


@pytest.mark.parametrize("more", [{"cpu": 6.5}, {"memory": 6.5e9}])
def test_what_was_attested_is_forgotten_where_one_node_shows_that_a_pod_takes_more(more: dict[str, float]) -> None:
    three = ClassSum(pods=5, cpu=5, memory=5e9, nodes=3)
    attested = remember({}, model_of(0, {"a": three}))
    assert not remember(attested, model_of(1, {"a": three.model_copy(update={"nodes": 1} | more)}))


@pytest.mark.parametrize(("left", "returned"), [(2, False), (1, True), (0, True)])
def test_a_class_has_come_back_only_where_no_two_nodes_had_any_of_its_pods_meanwhile(
    left: int, *, returned: bool
) -> None:
    three = ClassSum(pods=3, cpu=3, memory=3e9, nodes=3)
    fewer = {"a": ClassSum(pods=left, cpu=left, memory=left * 1e9, nodes=left)} if left else {}
    attested = remember({}, model_of(0, {"a": three}))
    for second in range(1, 41):
        attested = remember(attested, model_of(second * 1_000_000, fewer))
        attested = classes.load(classes.dump(attested))
    assert remember(attested, model_of(41_000_000, {"a": three}))["a"].returned is returned


def test_what_pods_took_before_their_last_seconds_fades_over_ten_minutes() -> None:
    attested = remember({}, model_of(0, {"a": ClassSum(pods=6, cpu=9.0, memory=6e9, nodes=3)}))
    resting = ClassSum(pods=3, cpu=0.03, memory=6e9, nodes=3)
    for second in range(1, 601):
        attested = remember(attested, model_of(second * 1_000_000, {"a": resting}))
    assert attested["a"][1].cpu == pytest.approx(3 * 1.5 / 2)
    assert attested["a"][1].memory == 6e9


def test_a_clock_that_was_ahead_makes_nothing_last_longer() -> None:
    job = ClassSum(pods=5, cpu=5, memory=5e9, nodes=3)
    attested = remember({}, model_of(30 * 24 * HOUR_US, {"job": job}))
    attested = remember(attested, model_of(0, {}))
    assert remember(attested, model_of(25 * HOUR_US, {}))
    assert not remember(attested, model_of(25 * HOUR_US + 1, {}))


def test_evidence_of_pods_that_run_counts_instead_of_what_is_remembered() -> None:
    before = ClassSum(pods=100, cpu=100, memory=1e11, nodes=3)
    now = before.model_copy(update={"pods": 0.5, "cpu": 2.0, "nodes": 1})
    attested = remember({}, model_of(0, {"a": before}))
    assert cluster_of({"a": now}, attested, lambda _: 0).cost.tolist() == [[4, 2e11]]
    starting = now.model_copy(update={"pods": 0.4})
    assert cluster_of(evident({"a": starting}, ()), attested, lambda _: 0).cost.tolist() == [[1, 1e9]]


def test_a_class_that_is_evident_stays_so_until_there_is_half_as_much_evidence() -> None:
    little, less = (ClassSum(pods=pods, cpu=1, memory=1) for pods in (0.3, 0.2))
    assert evident({"a": little, "b": less}, ()) == {}
    assert evident({"a": little, "b": less}, {"a", "b"}) == {"a": little}


def test_the_newest_few_classes_are_remembered_beside_those_that_run() -> None:
    running = {f"run-{number}": ClassSum(pods=1, cpu=1, memory=1, nodes=3) for number in range(60)}
    attested: Attested = {}
    for second in range(40):
        job = {f"job-{second:02}": ClassSum(pods=1, cpu=1, memory=1, nodes=3)}
        attested = remember(attested, model_of(second, running | job))
    attested = remember(attested, model_of(40, running))
    assert [name for name in attested if name not in running] == [f"job-{second}" for second in range(24, 40)]
    names: list[str] = []

    def number(name: str) -> int:
        names.append(name)
        return len(names)

    cluster = cluster_of(running, attested, number)
    assert len(cluster.label) == MAXIMUM_CLASSES
    assert [name for name in names if name not in running] == ["job-36", "job-37", "job-38", "job-39"]


def test_a_node_knows_a_class_that_ran_elsewhere_an_hour_ago_also_after_a_restart() -> None:
    jobs = {"job": ClassSum(pods=5, cpu=2.5, memory=5e9, running=5, soaking=0, nodes=3)}
    partition, restarted = Partition(configured(), 0), Partition(configured(), 0)
    gone = model_of(HOUR_US, {})
    partition.fold([(NAMES.model, codec.encode(model)) for model in (model_of(0, jobs), gone)])
    restarted.restore(partition.snapshot())
    first = [stored(sampled("new", second, 2.0, 4e9, 0)) for second in range(3)]
    reports = rows_of(partition.fold(first)[0])
    assert reports[0].classes is not None
    assert reports[0].classes["job"].pods == 0
    assert reports[0].classes["job"].cpu == pytest.approx(share_of(0.5), rel=0.01)
    assert (reports[0].classes["job"].prior or 0.0) < 0.1
    assert rows_of(restarted.fold(first)[0]) == reports
