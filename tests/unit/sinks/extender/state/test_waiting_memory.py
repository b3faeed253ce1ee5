"""What is kept of rejected pods and of annotations is bounded in bytes, whatever users write and however many nodes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from schemas.sections import ranking
from schemas.sections.placement import Extender
from sinks.extender import evaluator, name_list
from sinks.extender.evaluator import Evaluator
from sinks.extender.pod import parse
from sinks.extender.strategy import registry
from sinks.extender.strategy.peak import Peak
from sinks.extender.strategy.protocol import Strategy
from tests.support.extender.placement import START, Clock, Replica, asked, given, node, report

NODES = [f"node-{number}.example" for number in range(50)]
ALL = "+".join(ranking.STRATEGIES)


def full_nodes() -> Replica:
    replica = Replica(given(), Clock())
    for name in NODES:
        replica.cluster_state.describe(node(name))
        replica.cluster_state.report(report(name, START, 0.5))
    return replica


async def test_rejected_pods_share_the_names_of_their_nodes() -> None:
    replica = full_nodes()
    for number in range(2):
        names = name_list.of(NODES)  # as a request has them: each time they are read they are other objects
        assert names is not None
        await replica.selector.filter(asked(f"p{number}", workload=f"class-{number}"), names)
    first, second = ({id(name) for name in waiting.nodes} for waiting in replica.waiting.longest(2))
    assert first == second
    assert len(first) == len(NODES)


async def test_of_a_rejected_pod_only_the_annotations_and_labels_are_kept_that_count() -> None:
    replica, wanted = full_nodes(), {"spazio.strategy": "availability", "spazio.disk-type": "ssd"}
    more = {"example.com/notes": "x" * 200_000, "spazio.notes": "x" * 200_000, "spazio.network-type": "x" * 200_000}
    raw = asked("p", workload="web", annotations={**wanted, **more})
    raw["metadata"]["labels"] |= {f"label-{number}": "x" for number in range(1000)} | {"spazio.disk-type": "hdd"}
    await replica.selector.filter(raw, NODES)
    (waiting,) = replica.waiting.longest(2)
    assert dict(waiting.pod.annotations) == wanted
    assert dict(waiting.pod.labels) == {"spazio.disk-type": "hdd"}


class Recorded(dict[str, str]):
    """Texts that note which of them are read."""

    def __init__(self) -> None:
        super().__init__({"spazio.strategy": ALL, "spazio.minimum-availability": "0.5"})
        self.read: set[str] = set()

    def __contains__(self, name: object) -> bool:
        self.read.add(str(name))
        return super().__contains__(name)

    def __getitem__(self, name: str) -> str:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)


def test_a_verdict_depends_on_no_other_labels_and_annotations_than_it_names() -> None:
    replica, annotations, labels = full_nodes(), Recorded(), Recorded()
    pod = replace(parse(asked("p")), annotations=annotations, labels=labels)
    verdict = Evaluator(given().extender, replica.cluster_state).evaluate(pod, NODES, START)
    assert {strategy.name for strategy, _ in verdict.strategies} == set(registry.NAMES)
    assert "spazio.disk-type" in annotations.read & labels.read
    assert annotations.read | labels.read <= evaluator.READ


async def test_an_annotation_that_is_too_long_is_refused_with_its_length_and_the_default_counts() -> None:
    replica = full_nodes()
    await replica.selector.filter(asked("p", annotations={"spazio.strategy": "peak" + " " * 3000}), NODES)
    (decision,) = replica.decisions
    assert decision.note == "annotation spazio.strategy: has 3004 characters, and may have 2000"
    assert decision.strategies == {"availability": 1}


def test_the_strategies_of_the_annotations_that_were_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "_MOST_TEXTS", 2)
    made: list[list[str]] = []

    def make(terms: Mapping[str, ranking.Term], _settings: Extender) -> list[tuple[Strategy, float]]:
        made.append(list(terms))
        return [(Peak(), 1.0)]

    monkeypatch.setattr(registry, "make", make)
    kept = Evaluator(given().extender, Replica(given(), Clock()).cluster_state)
    for text in ("peak", "weighted", "peak", "availability", "peak", "weighted"):
        kept._made(text)
    assert made == [["peak"], ["weighted"], ["availability"], ["weighted"]]
