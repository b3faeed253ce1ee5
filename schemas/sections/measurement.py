"""The sections of what is measured: samples of a node, the edge agent, container sources, the Kubernetes API."""

import socket
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from schemas.sections.section import Commas, Location, OptionalLocation, Seconds, Section
from schemas.subject import is_node_name

CONTAINER_SOURCES = ("cgroup", "bundle", "docker", "containerd")


def _node_name(value: str) -> str:
    if value and not is_node_name(value):
        raise ValueError("has no white space and at most 253 characters; empty means this host's name")
    return value


def _divides_a_second(value: float) -> float:
    if abs(1 / value - round(1 / value)) > 1e-9:
        raise ValueError("does not divide one second; use 1, 0.5, 0.2, 0.1, 0.05, ...")
    return value


class Sample(Section):
    """What the agent measures."""

    node: Annotated[str, AfterValidator(_node_name)] = Field(
        "",
        description="Name of the node in every message. Empty: the host name, which is the node's name in most "
        "clusters.",
    )
    interval_seconds: Annotated[float, AfterValidator(_divides_a_second)] = Field(
        0.1,
        ge=0.01,
        le=1,
        description="Seconds between two samples; it must divide one second. Start spikes of containers last about "
        "0.2 s, so the smoothing needs 10 samples a second to see and remove them.",
    )
    buffer_blocks: int = Field(
        600,
        ge=1,
        description="Blocks of one second that the agent keeps while the server is away, of samples and of what pods "
        "use; the oldest are dropped first. The default covers ten minutes. Samples take under 1 MB; usage takes "
        "at most 8 MB, which covers ten minutes of about 80 pods, or five of 160.",
    )
    proc: Location = Field(
        Path("/proc"),
        description="Where the host's /proc is mounted. In a container it is mounted elsewhere, for example at "
        "/host/proc.",
    )
    cgroup: Location = Field(
        Path("/sys/fs/cgroup"),
        description="Where the host's cgroup tree is mounted. In a container it is mounted elsewhere, for example at "
        "/host/cgroup.",
    )

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
        description="Relative change of the local model after which the edge agent sends it. It may put a signal off "
        "by about half of this share; availability stays exact. 0: every change is sent. Where a Kalman form computes "
        "availability from the signal, the agent always sends the model.",
    )
    model_seconds: Seconds = Field(
        30,
        description="Longest time between two sendings of the local model, and the interval at which the agent fetches "
        "the global model, in seconds. A processor that has missed a model waits this long. Shorter intervals send "
        "more bytes.",
    )
    save_seconds: Seconds = Field(
        10,
        description="Seconds between two writes of the edge agent's state to the data folder. After a crash the model "
        "relearns what the last write lacks, which takes about as long (`model.tau_seconds`).",
    )


class Runtime(Section):
    """Where the agent finds containers, and how it reads their usage."""

    docker_socket: Location = Field(
        Path("/var/run/docker.sock"), description="Socket of the Docker Engine API. The default is Docker's own."
    )
    containerd_socket: Location = Field(
        Path("/run/containerd/containerd.sock"),
        description="Socket of containerd's gRPC API. The default is containerd's own.",
    )
    bundles: Annotated[tuple[Location, ...], Commas, Field(min_length=1)] = Field(
        (
            Path("/run/containerd/io.containerd.runtime.v2.task"),
            Path("/run/docker/containerd/daemon/io.containerd.runtime.v2.task"),
            Path("/run/k3s/containerd/io.containerd.runtime.v2.task"),
        ),
        description="Folders in which containerd keeps a bundle for each task. The default names those of the system's "
        "containerd, of dockerd and of k3s.",
    )
    rescan_seconds: Seconds = Field(
        1,
        description="Seconds between two full listings of a container source, which also find a runtime that has "
        "started, stopped or come back. The default bounds to one second how late the agent notices an event that a "
        "watch missed.",
    )
    usage: bool = Field(
        True,
        description="Publish the usage of each pod once a second. Without it there are no workload classes, and "
        "estimates use the node's usage and number of pods alone.",
    )
    buffer_events: int = Field(
        10_000,
        ge=1,
        description="Container events that the agent keeps while the server is away; the oldest are dropped first. The "
        "default covers the four events of 2,500 containers.",
    )


class Kube(Section):
    """The Kubernetes API, for the cluster watch."""

    config: OptionalLocation = Field(
        None,
        description="Kubeconfig file. Empty: the pod's service account, else KUBECONFIG, else ~/.kube/config.",
    )
    context: str = Field("", description="Context of the kubeconfig. Empty: its current context.")
    page: int = Field(
        500,
        ge=1,
        le=10_000,
        description="Objects that one page of a list contains. The default is the page size of kubectl; it bounds the "
        "memory of client and API server.",
    )
    watch_seconds: Seconds = Field(
        290,
        description="Seconds after which the API server is asked to end a watch, so that a new one replaces a watch "
        "that died unnoticed. The default replaces it within five minutes.",
    )
    price_label: str = Field(
        "spazio.price",
        min_length=1,
        description="Label or annotation of a node that states its price per hour. The `weighted` strategy uses it.",
    )
    save_seconds: Seconds = Field(
        5,
        description="Seconds between two checkpoints of what the watch has published. After a restart the watch lists "
        "the cluster and publishes what differs from the checkpoint.",
    )
