"""Messages about containers, pods and what Kubernetes knows, for tests: small, valid, distinct by a number."""

from schemas.messages.base import Message
from schemas.messages.facts import NodeFacts, PodFacts, Taint
from schemas.messages.telemetry import ContainerEvent, PodUsageBlock
from tests.support.processors.telemetry import START

AT_US = START * 1_000_000


def event(what: str = "created", *, second: int = 0, container: str = "c1", boot: str = "boot") -> ContainerEvent:
    return ContainerEvent.model_validate(
        {
            "node": "n",
            "boot": boot,
            "at_us": AT_US + second * 1_000_000,
            "boottime_us": 5_000_000 + second * 1_000_000,
            "event": what,
            "container": container,
            "sources": ["bundle", "cgroup"],
            "sandbox": False,
            "pod": "uid-1",
            "namespace": "shop",
            "name": "web-5d8-x2x9q",
            "workload": "shop/web",
        }
    )


def usage(second: int = 0, pods: int = 2, *, system: float | None = 0.5, boot: str = "boot") -> PodUsageBlock:
    """Return a block of a pod whose all is known, of one of which only memory is, or of fewer."""
    return PodUsageBlock(
        node="n",
        boot=boot,
        seq=1000 + second,
        at_us=AT_US + second * 1_000_000,
        span_us=1_000_000,
        system_cpu_cores=system,
        system_memory_bytes=None if system is None else 1e9,
        pods=[f"uid-{pod}" for pod in range(pods)],
        namespaces=["shop", None][:pods],
        names=["web", None][:pods],
        workloads=["shop/web", None][:pods],
        containers=[2, 1][:pods],
        cpu_cores=[1.25, None][:pods],
        memory_bytes=[2e9, 3e9, None][:pods],
        cpu_pressure=[0.1, None][:pods],
        memory_pressure=[0.0, None][:pods],
        io_pressure=[0.0, None][:pods],
        throttled=[0.2, None][:pods],
    )


def node(version: int = 7, *, deleted: bool = False) -> NodeFacts:
    return NodeFacts(
        node="n",
        uid="node-uid",
        version=version,
        at_us=AT_US,
        deleted=deleted,
        created_us=AT_US,
        ready=True,
        unschedulable=False,
        allocatable={"cpu": 3.92, "memory": 15e9, "pods": 110},
        capacity={"cpu": 4.0},
        labels={"topology.kubernetes.io/zone": "a", "empty": ""},
        annotations={},
        taints=[Taint(key="gpu", value="yes", effect="NoSchedule")],
        price=0.17,
        zone="a",
    )


def pod(version: int = 1, *, on: str = "n", deleted: bool = False) -> PodFacts:
    return PodFacts(
        node=on,
        pod="uid-0",
        namespace="shop",
        name="web",
        version=version,
        at_us=AT_US + version,
        deleted=deleted,
        phase="Running",
        created_us=AT_US,
        initialization_seconds=2.5,
        requests={"cpu": 0.1},
        limits={},
        labels={"app": "web"},
        annotations={"spazio.class": "shop/web"},
        workload="shop/web",
        priority=-5,
        qos="Burstable",
    )


def of_each_kind(number: int) -> dict[str, Message]:
    """Return one message of each kind by its kind."""
    return {
        "containers": event(second=number, container=f"c{number}"),
        "pods": usage(number),
        "nodefacts": node(1 + number),
        "podfacts": pod(1 + number),
    }
