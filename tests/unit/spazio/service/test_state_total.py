"""Counts of processors' state are counters, in both formats of Prometheus, and gauges under their earlier names."""

import pytest
from prometheus_client import REGISTRY, exposition
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from schemas import settings as all_settings
from spazio.service import folding
from tests.support.processors import telemetry

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


def series(partition: str) -> dict[str, float]:
    """Return what is exposed of a partition's counters."""
    values = {name: REGISTRY.get_sample_value(f"{name}_total", {"partition": partition}) for name in COUNTS}
    return {name: value for name, value in values.items() if value is not None}


def test_a_replica_that_takes_a_partition_over_begins_with_its_counts_and_had_no_series_before() -> None:
    settings = all_settings.load({"process_nodes_max": "1"}, environ={})
    blocks = [telemetry.stored(telemetry.block(f"n{index}", 1, cpu_util=0.5, memory_util=0.5)) for index in range(4)]
    elsewhere, standing_by = (folding.partition(settings, number) for number in (7, 8))
    assert series("8") == {}
    elsewhere.fold(blocks)
    assert series("7")["spazio_refused_node_messages"] == 3
    standing_by.restore(elsewhere.capture())
    assert series("8") == series("7")
    standing_by.clear()
    assert series("8") == {}
