"""The sections of the settings: every setting with its unit, its default and the reason for that default."""

import os
import socket
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict

from schemas import metric
from schemas.subject import PARTITIONS, is_node_name

FEATURES = ("cpu", "memory", "memory_pressure", "io_pressure", "disk")
SIMULATED_KINDS = ("samples", "containers", "pods", "nodefacts", "podfacts")  # those that the simulator makes
CONTAINER_SOURCES = ("cgroup", "bundle", "docker", "containerd")


class Section(BaseModel):
    """Base of the sections: frozen, and a field that does not exist is a fault."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _data_home() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "spazio"


def _node_name(value: str) -> str:
    if value and not is_node_name(value):
        raise ValueError("has no white space and at most 253 characters; empty means this host's name")
    return value


def _server_url(value: str) -> str:
    try:
        parts = urlsplit(value if "://" in value else f"nats://{value}")
        sound = bool(parts.hostname) and parts.scheme in ("nats", "tls") and parts.port != 0 and not parts.fragment
    except ValueError:
        sound = False
    if value and (not sound or any(char in value for char in " ,\t\n")):
        raise ValueError("is one address, like nats://host:4222 or tls://user:password@host:4222")
    return value


def _divides_a_second(value: float) -> float:
    if abs(1 / value - round(1 / value)) > 1e-9:
        raise ValueError("does not divide one second; use 1, 0.5, 0.2, 0.1, 0.05, ...")
    return value


def _features(value: tuple[str, ...]) -> tuple[str, ...]:
    if set(value) - set(FEATURES) or len(set(value)) != len(value) or not {"cpu", "memory"} <= set(value):
        raise ValueError(f"are different names out of {', '.join(FEATURES)}; cpu and memory must be among them")
    return value


def _kinds(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value or set(value) - set(SIMULATED_KINDS) or "samples" not in value:
        raise ValueError(f"are names out of {', '.join(SIMULATED_KINDS)}; samples must be among them")
    return value


def _metrics(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value or len(set(value)) < len(value) or set(value) - set(metric.NAMES):
        raise ValueError(f"are names out of {', '.join(metric.NAMES)}, each once")
    return value


Seconds = Annotated[float, Field(gt=0, le=86_400 * 366)]
Port = Annotated[int, Field(ge=0, le=65_535)]
Bytes = Annotated[int, Field(gt=0)]
Commas = BeforeValidator(lambda value: value.split(",") if isinstance(value, str) else value)
# A setting that may change while services run; `schemas.live` says which may.
RELOAD: JsonDict = {"reload": True}
Fraction = Annotated[float, Field(ge=0, le=1)]


class Data(Section):
    """Where files live."""

    dir: Path = Field(default_factory=_data_home, description="folder of streams, history and addresses.json")
    min_free_bytes: Bytes = Field(
        32 << 20,
        description="free space below which nothing is started; a minute of one node's streams and history",
    )


class Nats(Section):
    """The message bus."""

    url: Annotated[str, AfterValidator(_server_url)] = Field(
        "", description="server to use; empty: an embedded one (up), or nats://127.0.0.1:4222"
    )
    port: Port = Field(4222, description="port of the embedded server; the next free one if it is taken, 0: any")
    connect_timeout_seconds: Seconds = Field(5, description="for one attempt; a loopback connect takes under 0.1")
    request_timeout_seconds: Seconds = Field(5, description="for one acknowledgement; covers a leader election")
    ping_interval_seconds: int = Field(
        5, ge=1, le=600, description="a dead server is noticed after two; the client's 120 is deaf"
    )
    probe_seconds: float = Field(
        2,
        ge=0.1,
        le=60,
        description="the server is asked so often whether it answers; two silences so long, and we connect anew",
    )
    telemetry_max_age_seconds: Seconds = Field(3600, description="how long raw telemetry can be replayed")
    telemetry_max_bytes: Bytes = Field(1 << 30, description="bound on the telemetry stream's file; 1 h of 250 nodes")
    estimates_max_age_seconds: Seconds = Field(3600, description="as long as telemetry, so that history can catch up")
    estimates_max_bytes: Bytes = Field(1 << 30, description="bound on the estimates stream's file")
    events_max_age_seconds: Seconds = Field(7 * 86_400, description="dead letters wait a week for somebody to look")
    events_max_bytes: Bytes = Field(128 << 20, description="bound on dead letters and decisions")
    duplicate_window_seconds: Seconds = Field(
        30,
        description="a retry within it is stored once; folds and history skip a later one by its seq. At thousands of "
        "nodes the server spends more on the ids of two minutes than on storing the messages",
    )
    replicas: int = Field(1, ge=1, le=5, description="copies of each stream in a NATS cluster; 3 outlive one server")
    partitions: int = Field(PARTITIONS, ge=1, le=256, description="shards of nodes; fixed when the stream is made")


class Http(Section):
    """Metrics and health of a service."""

    host: str = Field("127.0.0.1", description="address to listen on; loopback unless told otherwise")
    port: Port = Field(9470, description="port; up gives it to the metrics sink and any free one to the others")


class Sample(Section):
    """What the agent measures."""

    node: Annotated[str, AfterValidator(_node_name)] = Field("", description="node name; empty: this host's name")
    interval_seconds: Annotated[float, AfterValidator(_divides_a_second)] = Field(
        0.1,
        ge=0.01,
        le=1,
        description="10 Hz: container spikes last about 0.2 s and must be seen to be removed",
    )
    buffer_blocks: int = Field(
        600, ge=1, description="newest blocks kept while the server is away: ten minutes, under 1 MB"
    )
    proc: Path = Field(Path("/proc"), description="where the host's /proc is mounted")
    cgroup: Path = Field(Path("/sys/fs/cgroup"), description="where the host's cgroup tree is mounted")

    @property
    def samples(self) -> int:
        """Samples in a block of one second."""
        return round(1 / self.interval_seconds)

    @property
    def node_name(self) -> str:
        """The node's name: the setting, or this host's."""
        return self.node or socket.gethostname()


class Edge(Section):
    """What a node sends that smooths and models itself."""

    model_change: float = Field(
        0.1,
        ge=0,
        le=1,
        description="the local model is sent once it has moved by this share of itself; a signal is then off by about "
        "half of it, availability not at all; where a Kalman form makes availability of the signal, it is always sent",
    )
    model_seconds: Seconds = Field(
        30,
        description="the local model is sent so often even if it has not moved, and the global one heard; who has "
        "missed it waits so long",
    )
    save_seconds: Seconds = Field(
        10, description="state is written to the data folder so often; what a crash loses, the model has again after it"
    )


class Runtime(Section):
    """Where the agent finds containers, and how it reads their usage."""

    docker_socket: Path = Field(Path("/var/run/docker.sock"), description="socket of the Docker Engine API")
    containerd_socket: Path = Field(
        Path("/run/containerd/containerd.sock"), description="socket of containerd's gRPC API"
    )
    bundles: Annotated[tuple[Path, ...], Commas, Field(min_length=1)] = Field(
        (
            Path("/run/containerd/io.containerd.runtime.v2.task"),
            Path("/run/docker/containerd/daemon/io.containerd.runtime.v2.task"),
            Path("/run/k3s/containerd/io.containerd.runtime.v2.task"),
        ),
        description="folders of containerd's task bundles: the system's, dockerd's own, k3s's",
    )
    rescan_seconds: Seconds = Field(
        1, description="each source looks so often whether what it follows is still, or again, there, and lists anew"
    )
    usage: bool = Field(True, description="publish each pod's usage once a second")
    buffer_events: int = Field(
        10_000, ge=1, description="newest container events kept while the server is away; 2,500 containers' lives"
    )


class Kube(Section):
    """The Kubernetes API, for the cluster watch."""

    config: Path | None = Field(
        None, description="kubeconfig; default: the pod's service account, else KUBECONFIG or ~/.kube/config"
    )
    context: str = Field("", description="context of the kubeconfig; empty: its current one")
    page: int = Field(500, ge=1, le=10_000, description="objects asked for at once in a list; the API server's advice")
    watch_seconds: Seconds = Field(
        290, description="a watch is asked to end so often, so that one which died unnoticed is replaced"
    )
    price_label: str = Field("spazio.price", min_length=1, description="node label or annotation with price per hour")
    save_seconds: Seconds = Field(5, description="what was published is checkpointed so often")


class Smoothing(Section):
    """How short spikes are removed."""

    form: Literal["running_median", "dynamic_ema"] | None = Field(
        None, description="default: running_median; dynamic_ema in the carico variant"
    )
    window: int = Field(7, ge=3, le=31, description="samples; 7 at 10 Hz removes 0.3 s and follows a step in 0.4 s")
    publish: bool = Field(True, description="publish smoothed blocks")


class ModelSettings(Section):
    """How the workload is learned."""

    variant: Literal["default", "carico"] = Field(
        "default", description="carico: every step as the dissertation has it"
    )
    features: Annotated[tuple[str, ...], Commas, AfterValidator(_features)] = Field(
        FEATURES, description="rows of the model; availability is made of cpu and memory alone"
    )
    rank: int = Field(3, ge=1, le=64, description="kept directions of the reference form; 3 loses under 0.1 % of k")
    tau_seconds: Seconds = Field(10, description="memory of a node's model")
    global_weight: Fraction = Field(0.5, description="share of the global model in a node's signal")
    silent_seconds: Seconds = Field(30, description="a node without a block for so long leaves the global model")


class Policy(Section):
    """What fits: how much slower pods may become, and what of a node is never theirs."""

    slowdown: float | None = Field(
        None,
        gt=1,
        le=10,
        description="a pod fits while the mean slowdown of CPU work stays at or below it: time taken over time alone; "
        "default: estimate.slowdown",
    )
    eviction_bytes: int = Field(
        100 << 20, ge=0, description="memory that stays available; below it the kubelet evicts (memory.available)"
    )
    whole: bool = Field(True, description="round lower down to whole pods, since nobody places a part of one")


class Estimate(Section):
    """How cost and capacity are estimated, and what fits means."""

    form: Literal["composed", "least_squares", "kalman_dual", "kalman_joint", "kalman_delta"] | None = Field(
        None,
        description="default: composed, of what pods of each workload class use, and least_squares of usage on the "
        "number of pods where nobody tells what pods use; kalman_dual in the carico variant",
    )
    slowdown: float = Field(
        2.0, gt=1, le=2, description="mean slowdown at which the blend of utilisation and pressure is 1; 2 is its mean"
    )
    headroom_cpu: float = Field(0.0, ge=0, lt=1, description="share of CPU never given away")
    headroom_memory: float = Field(0.0, ge=0, lt=1, description="share of memory never given away")
    memory_seconds: Seconds = Field(300, description="how long evidence of a pod's cost counts")
    level_seconds: Seconds = Field(1, description="how fast the idle baseline follows")
    pod_cores: float = Field(0.1, gt=0, description="reference pod, kube-scheduler's stand-in for one without requests")
    pod_memory_bytes: Bytes = Field(200 << 20, description="reference pod, kube-scheduler's stand-in")
    prior_deviation: float = Field(0.5, gt=0, description="relative standard deviation of the reference pod's cost")
    max_pods: int = Field(110, gt=0, le=10_000, description="pods that a node may run; the kubelet's default")
    process_noise: float = Field(1e-4, ge=0, description="Q of the Kalman forms; larger ones oscillate")
    settle_seconds: Seconds = Field(2, description="churn ends so long after the last container event; starts spike")
    churn_limit_seconds: Seconds = Field(
        30, description="unbroken churn for longer is how a node is: then it is estimated from fresh usage again"
    )
    hold_in_churn: bool = Field(True, description="estimators and model hold still in churn; off only to compare")
    classes: int = Field(8, ge=0, le=64, description="workload classes told apart on a node; 0: none")
    change_pods: float = Field(0.05, ge=0, description="a smaller change of availability waits for the next report")
    report_seconds: Seconds = Field(4, description="longest time between two reports of a node")


class Process(Section):
    """How processors run."""

    checkpoint_seconds: Seconds = Field(
        5, json_schema_extra=RELOAD, description="replay after a crash is at most this long"
    )
    tick_seconds: float = Field(
        0.01, ge=0, le=1, json_schema_extra=RELOAD, description="messages that arrive within it are folded together"
    )
    batch: int = Field(2000, ge=1, le=10_000, description="messages asked for at once; fewer cost more each")
    aggregate: bool = Field(True, description="make the global model; off where a replay brings the recorded one")
    failover_seconds: float = Field(
        3, ge=1, le=3600, description="others take over what a replica has not asked for so long; a third: its pulls"
    )


class History(Section):
    """Parquet files and the views over them."""

    dir: Path | None = Field(None, description="folder; default: history in the data folder")
    flush_seconds: Seconds = Field(
        5, json_schema_extra=RELOAD, description="rows are in a file after it; fewer seconds, smaller files"
    )
    retention_seconds: float = Field(
        7 * 86_400,
        gt=0,
        le=86_400 * 366 * 100,
        json_schema_extra=RELOAD,
        description="hours whose event time is older are dropped",
    )
    buffer_rows: int = Field(
        500_000,
        ge=1000,
        json_schema_extra=RELOAD,
        description="rows held while the disk is full; the rest stays in the stream",
    )


class Cache(Section):
    """The scheduler cache."""

    expiry_seconds: Seconds = Field(30, description="an older availability is absent: seven missed reports")


class Simulated(Section):
    """Simulated nodes."""

    nodes: int = Field(0, ge=0, le=1_000_000, description="simulated nodes; 0: none under up, 100 for load")
    seed: int = Field(1, ge=0, description="the same seed gives the same nodes, pods and load")
    speed: float = Field(1.0, gt=0, le=1000, description="simulated seconds in a second")
    seconds: float = Field(0, ge=0, description="simulated seconds until load ends; 0: until it is told to")
    start_us: int = Field(0, ge=0, le=2**52, description="event time of the first second, in microseconds; 0: now")
    kinds: Annotated[tuple[str, ...], Commas, AfterValidator(_kinds)] = Field(
        SIMULATED_KINDS, description="kinds of messages to publish"
    )
    metrics: Annotated[tuple[str, ...], Commas, AfterValidator(_metrics)] = Field(
        metric.NAMES, description="metrics of a node's samples; agents send them all"
    )
    churn_per_minute: float = Field(
        0.5, ge=0, le=60, description="pods that come to a node in a minute, and about as many go"
    )
    wave_seconds: Seconds = Field(3600, description="length of the daily wave of load; an hour shows it in an evening")
    prepared_seconds: int = Field(
        0,
        ge=0,
        le=600,
        description="seconds made in advance and sent over and over, without churn, so that sending is all the load "
        "costs; 20,000 nodes take 26 MB a second; 0: none",
    )
    follow: bool = Field(
        False,
        description="load gives telemetry to the nodes that the cluster watch knows, such as KWOK's, instead of nodes "
        "of its own: samples, containers and pods out of kinds, in real time. A running pod uses what its annotations "
        "spazio.usage-cpu and spazio.usage-memory say, else its requests, else 0.1 cores and 200 MiB; nodes, "
        "metrics, speed, churn, waves and prepared_seconds have no meaning then",
    )
    in_flight: int = Field(10_000, ge=1, le=1_000_000, description="messages sent and not yet acknowledged, at most")


class Replay(Section):
    """Recorded telemetry."""

    map: Annotated[tuple[str, ...], Commas] = Field(
        (), description="where columns of a CSV or Parquet file come from: name=column, or name=column*2 with a factor"
    )
    speed: float = Field(0, ge=0, le=1e6, description="recorded seconds in a second; 1: as recorded, 0: all at once")
    shift: bool = Field(
        False, description="move times so that the recording begins now; else the cache takes none of it for fresh"
    )
    cpus: int = Field(0, ge=0, le=65_536, description="cores of a node whose recording does not say; 0: a fault")
    memory_bytes: int = Field(0, ge=0, description="memory of a node whose recording does not say; 0: a fault")
    step_seconds: float = Field(1, ge=0.001, le=60, description="time from one sample to the next if one stands alone")
    model_lag_seconds: float = Field(
        1,
        ge=0,
        description="recorded seconds by which nodes may be ahead of the global model; it always was about one behind, "
        "and more makes a long recording faster",
    )
    ahead: int = Field(
        50_000, ge=1000, description="messages that the recording may be ahead of the processors, so that none expires"
    )


class Log(Section):
    """What services say."""

    level: Literal["debug", "info", "warning", "error"] | None = Field(
        None,
        json_schema_extra=RELOAD,
        description="least severity shown; default: info for a service, warning under up, which has a screen",
    )
    format: Literal["auto", "json", "text"] = Field(
        "auto", json_schema_extra=RELOAD, description="auto: text on a terminal, else json"
    )
