"""Counts of processors' state are counters, in both formats of Prometheus, and gauges under their earlier names."""

import pytest
from prometheus_client import REGISTRY, exposition
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from spazio.service import folding

COUNTS = {
    "spazio_withheld_messages": (folding.WITHHELD, "spazio_messages_withheld"),
    "spazio_refused_node_messages": (folding.REFUSED, "spazio_messages_of_refused_nodes"),
    "spazio_refused_pods": (folding.REFUSED_PODS, "spazio_pods_refused"),
    "spazio_ignored_container_events": (folding.IGNORED, "spazio_container_events_ignored"),
}


@pytest.mark.parametrize("name", COUNTS)
def test_a_count_is_a_counter_and_for_a_version_also_the_gauge_that_it_was(name: str) -> None:
    total, gauge = COUNTS[name]
    total.set("test", 3)
    total.set("test", 5)
    lines = exposition.generate_latest(REGISTRY).decode().splitlines()
    for line in (
        f"# TYPE {name}_total counter",
        f'{name}_total{{partition="test"}} 5.0',
        f"# TYPE {gauge} gauge",
        f'{gauge}{{partition="test"}} 5.0',
    ):
        assert line in lines


def test_openmetrics_has_both_as_families_of_their_own() -> None:
    for total, _ in COUNTS.values():
        total.set("test", 1)
    text = openmetrics.generate_latest(REGISTRY).decode()  # type: ignore[no-untyped-call] # the library's
    families = text_string_to_metric_families(text)  # type: ignore[no-untyped-call] # the library's
    kinds = {family.name: family.type for family in families}
    for name, (_, gauge) in COUNTS.items():
        assert (kinds[name], kinds[gauge]) == ("counter", "gauge")
