"""What placement stands on is not evicted for what is placed."""

import yaml  # type: ignore[import-untyped]

from tests.unit.project.deploy.test_kube_manifests import BACKUP, EXAMPLES, WORKLOADS, things

_SYSTEM = 2_000_000_000  # of the classes of Kubernetes itself; others end at half of that


def test_what_placement_depends_on_outranks_every_example_and_no_part_of_the_system() -> None:
    (own,) = things("PriorityClass")
    examples = [
        thing["value"]
        for path in EXAMPLES.glob("*.yaml")
        for thing in yaml.safe_load_all(path.read_text())
        if thing and thing["kind"] == "PriorityClass"
    ]
    assert sorted(examples) == [5000, 7000, 9000]
    assert max(examples) < own["value"] <= _SYSTEM // 2
    assert own.get("preemptionPolicy") is None  # so that it comes back also where its place was taken
    templates = {name: thing["spec"]["template"] for name, thing in WORKLOADS.items()}
    placed = {
        name
        for name, template in templates.items()
        if (template["metadata"].get("annotations") or {}).get("spazio.placement") == "off"
    }
    assert placed >= {"nats", "watch", "process", "cache", "extender"}
    ranked = {name for name, template in templates.items() if template["spec"].get("priorityClassName") == "spazio"}
    assert ranked == placed - {BACKUP}
