"""The sections of the settings that say how pods are placed, and what is written to Kubernetes."""

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field

from schemas.sections.core import Commas, Fraction, Port, Seconds, Section

StrategyName = Literal[
    "availability",
    "weighted",
    "most_allocated",
    "least_allocated",
    "requested_to_capacity_ratio",
    "target_load_packing",
    "peak",
]
STRATEGIES: tuple[str, ...] = get_args(StrategyName)
_FACTORS = ("fit", "disk", "network", "price", "stability", "priority")


def weights(text: str) -> dict[str, float]:
    """Read strategies with their weights, `name=weight` or `name`, with `+` between.

    Raises:
        ValueError: A name is none, or a weight is not positive.
    """
    found: dict[str, float] = {}
    for part in text.split("+"):
        name, separator, weight = part.strip().partition("=")
        try:
            found[name] = float(weight) if separator else 1.0
        except ValueError:
            found[name] = -1.0
        if name not in STRATEGIES or not 0 < found[name] < 1e6:
            raise ValueError(f"{part!r} is not name or name=weight, a name out of {', '.join(STRATEGIES)}")
    return found


def _strategies(value: str) -> str:
    weights(value)
    return value


def _profiles(value: tuple[str, ...]) -> tuple[str, ...]:
    for entry in value:
        name, separator, rest = entry.partition(":")
        if not (separator and name):
            raise ValueError(f"{entry!r} is not schedulerName:strategies")
        weights(rest)
    return value


def pairs(entries: tuple[str, ...]) -> dict[str, float]:
    """Read `name=number` entries.

    Raises:
        ValueError: One is none.
    """
    found = {}
    for entry in entries:
        name, _, number = entry.partition("=")
        try:
            found[name] = float(number)
        except ValueError:
            raise ValueError(f"{entry!r} is not name=number") from None
    return found


def _factors(value: tuple[str, ...]) -> tuple[str, ...]:
    if set(pairs(value)) - set(_FACTORS) or any(weight < 0 for weight in pairs(value).values()):
        raise ValueError(f"are name=weight, names out of {', '.join(_FACTORS)}, weights not below 0")
    return value


def _resources(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value or any(not name or not 1 <= weight <= 100 for name, weight in pairs(value).items()):
        raise ValueError("are resource=weight with commas between, weights from 1 to 100")
    return value


def _shape(value: tuple[str, ...]) -> tuple[str, ...]:
    points: list[tuple[float, float]] = []
    for entry in value:
        utilization, _, score = entry.partition("=")
        try:
            points.append((int(utilization), int(score)))
        except ValueError:
            raise ValueError(f"{entry!r} is not utilization=score, in whole numbers") from None
    rising = all(before[0] < after[0] for before, after in pairwise(points))
    if not points or not rising or any(not (0 <= u <= 100 and 0 <= s <= 10) for u, s in points):
        raise ValueError("is utilization=score with commas between, utilizations rising in 0..100, scores in 0..10")
    return value


class Extender(Section):
    """The scheduler extender: an HTTP service that kube-scheduler asks where pods may go."""

    host: str = Field("127.0.0.1", description="address to listen on; loopback unless told otherwise")
    port: Port = Field(8800, description="port; the next free one under up if it is taken, 0: any")
    tls_cert: Path | None = Field(None, description="certificate (PEM) to serve HTTPS with")
    tls_key: Path | None = Field(None, description="its key (PEM)")
    tls_client_ca: Path | None = Field(
        None,
        description="CA (PEM) of client certificates; others are turned away; default: no certificate is asked for",
    )
    mode: Literal["argmax", "graded"] = Field(
        "argmax",
        description="argmax: one node gets the whole score and a reservation, so nothing is overcommitted; graded: "
        "scores 0 to 10 beside the scheduler's own, and pods decided within a bind may meet on a node",
    )
    strategies: Annotated[str, AfterValidator(_strategies)] = Field(
        "availability", description="what ranks nodes: name or name=weight, with + between"
    )
    profiles: Annotated[tuple[str, ...], Commas, AfterValidator(_profiles)] = Field(
        (), description="strategies of other scheduler names: schedulerName:strategies, with commas between"
    )
    unknown: Literal["last", "reject"] = Field(
        "last", description="nodes without telemetry, or stale for long: ranked behind all others, or turned down"
    )
    stale_seconds: Seconds = Field(
        300, description="so long a silent node keeps its last capacity, less the pods that the API knows"
    )
    failure: Literal["open", "closed"] = Field(
        "closed", description="where a place cannot be held since NATS is away: open: all nodes pass; closed: pods wait"
    )
    release: Literal["report", "running"] = Field(
        "report",
        description="a reservation ends when a report of the node covers the pod's start; running: when the pod "
        "leaves Pending, which is the dissertation's rule",
    )
    settle_seconds: float = Field(
        2, ge=0, le=60, description="a report covers a start so long after it; smoothing and churn take that long"
    )
    reservation_seconds: Seconds = Field(
        30,
        description="a place is held so long for an unbound pod; raise it where volumes or gangs delay binds",
    )
    store_seconds: Seconds = Field(0.3, description="patience with NATS within a request; below httpTimeout")
    bind: bool = Field(False, description="serve the bind verb too, which needs a kubeconfig and create pods/binding")
    kick: bool | None = Field(
        None,
        description="annotate a node when room appears that rejected pods wait for, so that the scheduler tries them "
        "again; default: where a kubeconfig is named, or in a pod",
    )
    kick_seconds: Seconds = Field(2, description="at most one such annotation in so long")
    body_bytes: int = Field(16 << 20, ge=1024, description="largest request; 5,000 whole nodes are 10 MB")
    resources: Annotated[tuple[str, ...], Commas, AfterValidator(_resources)] = Field(
        ("cpu=1", "memory=1"), description="resources and weights of the allocation strategies, as kube-scheduler's"
    )
    shape: Annotated[tuple[str, ...], Commas, AfterValidator(_shape)] = Field(
        ("0=0", "100=10"), description="utilization=score points of requested_to_capacity_ratio"
    )
    target: float = Field(0.4, gt=0, lt=1, description="CPU utilization that target_load_packing packs to")
    factors: Annotated[tuple[str, ...], Commas, AfterValidator(_factors)] = Field(
        ("fit=1", "disk=1", "network=1", "price=1", "stability=1", "priority=1"),
        description="weights of the weighted strategy's factors",
    )
    high_priority: int = Field(1000, description="pods of this priority or more count as critical in weighted")
    window_seconds: Seconds = Field(7 * 86_400, description="over which weighted takes median price and interruptions")


class Output(Section):
    """What the Kubernetes sink writes."""

    mid: bool = Field(True, description="publish what can be reclaimed as extended resources of nodes")
    mid_cpu: str = Field("kubernetes.io/mid-cpu", min_length=1, description="resource in millicores; Koordinator's")
    mid_memory: str = Field("kubernetes.io/mid-memory", min_length=1, description="resource in bytes; Koordinator's")
    diff: Fraction = Field(0.1, description="a relative change up to it is not written before force_seconds")
    force_seconds: Seconds = Field(300, description="what has changed at all is written after so long")
    stale_seconds: Seconds = Field(900, description="an older prediction counts as none: amounts go to 0")
    metrics: bool = Field(True, description="write a NodeMetric object for each node")
    floor: bool = Field(True, description="raise minReplicas of annotated HorizontalPodAutoscalers to the forecast")
    floor_annotation: str = Field("spazio.floor", min_length=1, description="annotation that opts in, with value true")
    floor_seconds: Seconds = Field(300, description="a floor is lowered when the forecast was lower for so long")
    forecast_seconds: Seconds = Field(120, description="an older forecast counts as none: floors are restored")
    look_seconds: Seconds = Field(15, description="what is to be written is looked at so often, autoscalers among it")
