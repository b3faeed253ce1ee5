"""What is simulated: nodes, pods, physics and policy, from a TOML file.

Amounts are quantities as Kubernetes writes them ("250m", "8Gi") or plain numbers; times are seconds of virtual time.
Pods and nodes may come from lists instead (`trace`).
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from kube import quantity
from schemas import settings
from spazio.simulation import trace
from spazio.simulation.trace import Misshapen
from spazio.terminal import clean

PACKAGED = Path(__file__).parent / "scenarios"
SCHEDULERS = ("kube", "most_allocated", "requested_to_capacity_ratio", "trimaran", "spazio", "reference")
PRODUCT = ("spazio", "reference")
_OWN = {"batch": ("work", "spread", "threads"), "serving": ("cores", "seconds")}  # keys that only one kind has
_MOST_NODES, _MOST_PODS = 5_000, 50_000
_MOST_BYTES = 32 << 20  # pods of 600 bytes each


class Unreadable(ValueError):
    """The scenario cannot be used; the message names the file, the place and the fault."""


def _amount(value: object) -> object:
    return float(quantity.parse(value)) if isinstance(value, str) else value


Amount = Annotated[float, BeforeValidator(_amount), Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, BeforeValidator(_amount), Field(gt=0, allow_inf_nan=False)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?$")]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Nodes(_Table):
    """Nodes of one size.

    Attributes:
        count: How many.
        cpus: CPUs of each.
        memory: Bytes of each.
        system_cpu: Cores that it takes without any pod.
        system_memory: Bytes likewise.
        reserved_cpu: Cores that are not allocatable.
        reserved_memory: Bytes that are not allocatable.
        requested_cpu: Cores that pods of the system request, which count for schedulers that go by requests.
        requested_memory: Bytes likewise.
        pods: Most pods.
    """

    count: Annotated[int, Field(gt=0, le=_MOST_NODES)]
    cpus: Annotated[int, Field(gt=0, le=1024)] = 4
    memory: Positive = 8 * 2.0**30
    system_cpu: Amount = 0.05
    system_memory: Amount = 0.6 * 2.0**30
    reserved_cpu: Amount = 0.0
    reserved_memory: Amount = 0.0
    requested_cpu: Amount = 0.0
    requested_memory: Amount = 0.0
    pods: Annotated[int, Field(gt=0)] = 110

    @model_validator(mode="after")
    def _allocatable(self) -> Self:
        for resource, amount in (("cpu", self.cpus), ("memory", self.memory)):
            reserved, requested = getattr(self, f"reserved_{resource}"), getattr(self, f"requested_{resource}")
            if reserved + requested > amount:
                raise ValueError(
                    f"reserved_{resource} and requested_{resource} are {reserved + requested:.15g} together, "
                    f"and the node has {amount:.15g}"
                )
        return self


class Pods(_Table):
    """Pods of one workload.

    Attributes:
        name: Workload class.
        count: How many.
        at: When the first one is created.
        per_second: How many are created each second; 0: all at once.
        kind: `batch` pods work without a pause until their work is done; `serving` pods answer requests that come at
            random, for `seconds`.
        work: Core-seconds of a batch pod.
        spread: Standard deviation of the logarithm of the work.
        threads: Threads of a batch pod.
        cores: CPU that a serving pod's requests demand.
        seconds: Life of a serving pod; 0: to the end.
        memory: Bytes in use.
        cpu_request: Requested cores; absent: none.
        memory_request: Requested bytes; absent: none.
    """

    name: Name
    count: Annotated[int, Field(gt=0, le=_MOST_PODS)]
    at: Amount = 0.0
    per_second: Amount = 0.0
    kind: Literal["batch", "serving"] = "batch"
    work: Positive = 8.0
    spread: Annotated[float, Field(ge=0, le=2)] = 0.05
    threads: Annotated[int, Field(gt=0, le=1024)] = 1
    cores: Amount = 0.25
    seconds: Amount = 0.0
    memory: Amount = 32 * 2.0**20
    cpu_request: Positive | None = None
    memory_request: Positive | None = None

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        other = next(kind for kind in _OWN if kind != self.kind)
        if foreign := [name for name in _OWN[other] if name in self.model_fields_set]:
            names = " and ".join(foreign)
            raise ValueError(f"{names}: only pods of kind {other} have that, and kind is {self.kind!r}")
        return self

    @property
    def requests(self) -> dict[str, float]:
        """Requests by resource, as the scheduler counts them."""
        both = {"cpu": self.cpu_request, "memory": self.memory_request}
        return {resource: amount for resource, amount in both.items() if amount is not None}


class Loss(_Table):
    """Nodes that die; their pods begin again elsewhere."""

    at: Amount
    nodes: Annotated[int, Field(gt=0)] = 1


class Physics(_Table):
    """How nodes behave.

    Attributes:
        loss: Share of the throughput that is lost, at most, where many more threads run than there are CPUs.
        start_seconds: Mean time from binding to running.
        start_most: Longest such time.
        spike_seconds: For so long before a pod runs, the runtime keeps a CPU busy.
        restart_seconds: Pause after an out-of-memory kill; doubles with each.
    """

    loss: Annotated[float, Field(ge=0, lt=1)] = 0.05
    start_seconds: Amount = 1.5
    start_most: Amount = 4.0
    spike_seconds: Amount = 0.2
    restart_seconds: Amount = 10.0


class Trace(_Table):
    """Lists that take the place of `pods` and `nodes`; paths are relative to the scenario's file.

    Attributes:
        pods: List of pods.
        nodes: List of nodes; absent: the scenario states its nodes.
        speed: By which the times of the list are divided.
    """

    pods: Path
    nodes: Path | None = None
    speed: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0


class Scenario(_Table):
    """What is simulated.

    Attributes:
        name: For tables; absent in a file: the file's name, in small letters, digits and "-".
        about: One sentence.
        slowdown: Policy: pods of a node may be slowed down so much (`--policy-slowdown`).
        seconds: Latest end, in virtual time.
        binds_per_second: Pods for which the scheduler seeks a node at most each second.
        nodes: Groups of nodes.
        pods: Groups of pods.
        losses: Nodes that die.
        physics: How nodes behave.
        keep_requests: Pods state their requests to spazio, too; otherwise it sees pods without any.
        schedulers: Which are compared.
    """

    name: Name
    about: str = ""
    slowdown: Annotated[float, Field(gt=1, le=10)] = 2.0  # as `policy.slowdown`
    seconds: Annotated[float, Field(gt=0, le=86_400)] = 900.0
    binds_per_second: Positive = 100.0
    nodes: Annotated[list[Nodes], Field(min_length=1)]
    pods: Annotated[list[Pods], Field(min_length=1)]
    losses: list[Loss] = []
    physics: Physics = Physics()
    keep_requests: bool = False
    schedulers: Annotated[list[Literal[SCHEDULERS]], Field(min_length=1)] = list(SCHEDULERS)  # type: ignore[valid-type]

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        nodes, pods = sum(group.count for group in self.nodes), sum(group.count for group in self.pods)
        if nodes > _MOST_NODES or pods > _MOST_PODS:
            raise ValueError(f"{nodes} nodes and {pods} pods; at most {_MOST_NODES} and {_MOST_PODS} are simulated")
        if sum(loss.nodes for loss in self.losses) >= nodes:
            raise ValueError("losses leave no node")
        last = max(self.pods, key=_latest)
        if _latest(last) >= self.seconds:
            raise ValueError(
                f"pods {last.name} come until {_latest(last):g} s, but seconds = {self.seconds:g} ends the run: "
                "give it more, or [trace] a higher speed"
            )
        return self


def _latest(pods: Pods) -> float:
    """Return when the last pod of a group is created."""
    return pods.at + ((pods.count - 1) / pods.per_second if pods.per_second else 0.0)


def packaged() -> list[str]:
    """Return the names of the scenarios that come with spazio."""
    return sorted(path.stem for path in PACKAGED.glob("*.toml"))


def load(source: str) -> Scenario:
    """Read a scenario: a file, or the name of one that comes with spazio.

    Raises:
        Unreadable: It does not exist or cannot be used.
    """
    path = Path(source)
    if not path.suffix and not path.exists():
        path = PACKAGED / f"{source}.toml"
        if not path.exists():
            raise Unreadable(f"{source}: no such scenario; name a TOML file, or one of {', '.join(packaged())}")
    try:
        content = settings.toml(path, _MOST_BYTES)
        return Scenario.model_validate({"name": trace.named(path.stem, "scenario"), **_traced(content, path.parent)})
    except OSError as error:
        raise Unreadable(clean.reason(error, path)) from error
    except Misshapen as error:
        raise Unreadable(str(error)) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(map(str, first["loc"])) or "scenario"
        raise Unreadable(f"{path}: {location}: {first['msg']}") from error
    except ValueError as error:
        raise Unreadable(f"{path}: is no TOML: {error}") from error


def _traced(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a scenario's content with the pods and nodes of its lists, if it names any."""
    if "trace" not in content:
        return content
    wanted = Trace.model_validate(content["trace"])
    given = {"pods": trace.pods(folder / wanted.pods, wanted.speed)}
    if wanted.nodes is not None:
        given["nodes"] = trace.nodes(folder / wanted.nodes)
    if both := given.keys() & content.keys():
        raise Misshapen(f"{folder}: [trace] and [[{min(both)}]] exclude each other")
    return {**{name: value for name, value in content.items() if name != "trace"}, **given}


def text(wanted: Scenario) -> str:
    """Return a scenario as a TOML file, without what is left at its default."""
    return "\n".join(_lines(wanted.model_dump(mode="json", exclude_defaults=True, exclude_none=True))) + "\n"


def _lines(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines of TOML: plain values first, then tables."""
    nested = {name: value for name, value in content.items() if isinstance(value, dict) or _of_tables(value)}
    yield from (f"{name} = {_plain(value)}" for name, value in content.items() if name not in nested)
    for name, value in nested.items():
        for table in value if isinstance(value, list) else [value]:
            yield f"\n[[{name}]]" if isinstance(value, list) else f"\n[{name}]"
            yield from _lines(table)


def _plain(value: object) -> str:
    """Return a value as TOML: as JSON writes it, but TOML knows no surrogates, and wants one more character escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _of_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)
