"""The sections of telemetry that no agent measures: simulated nodes, and recordings."""

from typing import Annotated

from pydantic import AfterValidator, Field

from schemas import metric
from schemas.sections.section import Commas, Seconds, Section

SIMULATED_KINDS = ("samples", "containers", "pods", "nodefacts", "podfacts")  # those that the simulator makes


def _kinds(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value or set(value) - set(SIMULATED_KINDS) or "samples" not in value:
        raise ValueError(f"are names out of {', '.join(SIMULATED_KINDS)}; samples must be among them")
    return value


def _metrics(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value or len(set(value)) < len(value) or set(value) - set(metric.NAMES):
        raise ValueError(f"are names out of {', '.join(metric.NAMES)}, each once")
    return value


class Simulated(Section):
    """Simulated nodes."""

    nodes: int = Field(
        0, ge=0, le=1_000_000, description="Number of simulated nodes. 0: none under `up`, 100 under `load`."
    )
    seed: int = Field(
        1,
        ge=0,
        description="Seed of the simulation. The same seed gives the same nodes, pods and load, so runs compare.",
    )
    speed: float = Field(
        1.0, gt=0, le=1000, description="Simulated seconds per second. At 1 the nodes send like real ones."
    )
    seconds: float = Field(
        0, ge=0, description="Simulated seconds after which `load` ends. 0: it runs until a signal ends it."
    )
    start_us: int = Field(
        0,
        ge=0,
        le=2**52,
        description="Event time of the first second, in microseconds since the Unix epoch. 0: now, so that services "
        "take the messages for fresh.",
    )
    kinds: Annotated[tuple[str, ...], Commas, AfterValidator(_kinds)] = Field(
        SIMULATED_KINDS,
        description="Kinds of messages to publish; samples must be among them. The default is all that agents and the "
        "cluster watch publish.",
    )
    metrics: Annotated[tuple[str, ...], Commas, AfterValidator(_metrics)] = Field(
        metric.NAMES, description="Metrics in the samples of a node. The default is all, as real agents send."
    )
    churn_per_minute: float = Field(
        0.5,
        ge=0,
        le=60,
        description="Pods that start on a node in a minute; about as many end. The default changes a pod on each node "
        "every minute.",
    )
    wave_seconds: Seconds = Field(
        3600,
        description="Period of the simulated daily wave of load, in seconds. The default shortens a day to an hour, so "
        "an evening shows several.",
    )
    prepared_seconds: int = Field(
        0,
        ge=0,
        le=600,
        description="Seconds of messages that are made in advance and sent repeatedly, without churn. Then the load "
        "costs only what sending costs. 20,000 nodes need 26 MB for each second. 0: messages are made while they are "
        "sent.",
    )
    follow: bool = Field(
        False,
        description="Make telemetry for the nodes of the cluster watch, such as KWOK's, instead of for invented nodes: "
        "samples, containers and pods out of `simulated.kinds`, in real time. A running pod uses what its annotations "
        "spazio.usage-cpu and spazio.usage-memory state, else its requests, else 0.1 cores and 200 MiB; one with "
        "spazio.usage-threads has that many threads that never sleep instead of that CPU. The settings "
        "for nodes, metrics, speed, churn, waves and prepared seconds are then ignored.",
    )
    in_flight: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="Largest number of messages that are sent and not yet acknowledged. The default keeps the server "
        "busy at high rates and bounds memory.",
    )


class Replay(Section):
    """Recorded telemetry."""

    map: Annotated[tuple[str, ...], Commas] = Field(
        (),
        description="Columns of a CSV or Parquet file: name=column, or name=column*factor to convert the unit. Empty: "
        "the columns have the names of the table `samples`.",
    )
    speed: float = Field(
        0,
        ge=0,
        le=1e6,
        description="Recorded seconds per second. 1: as fast as it was recorded, without pauses of more than a minute. "
        "0: as fast as the pipeline can.",
    )
    shift: bool = Field(
        False,
        description="Shift all times so that the recording starts now. Without it the scheduler cache stays empty, "
        "since all availabilities are too old for it.",
    )
    cpus: int = Field(
        0, ge=0, le=65_536, description="Cores of a node whose recording does not state them. 0: that is a fault."
    )
    memory_bytes: int = Field(
        0, ge=0, description="Memory, in bytes, of a node whose recording does not state it. 0: that is a fault."
    )
    step_seconds: float = Field(
        1,
        ge=0.001,
        le=60,
        description="Seconds that a sample covers if a node has only one in a block. Otherwise the times of the "
        "samples give it.",
    )
    model_lag_seconds: float = Field(
        1,
        ge=0,
        description="Recorded seconds by which nodes may run ahead of the global model. A live model is about one "
        "second behind; larger values make a long recording faster. Nodes that report less often than each second "
        "run ahead by at least 20 of their periods.",
    )
    ahead: int = Field(
        50_000,
        ge=1000,
        description="Messages by which the recording may run ahead of the processors and the history. The limit keeps "
        "messages from expiring unread.",
    )
