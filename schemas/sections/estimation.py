"""The sections of what the fold computes: smoothing, model, what fits, cost and capacity."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from schemas.sections.section import Bytes, Commas, Fraction, Seconds, Section

FEATURES = ("cpu", "memory", "memory_pressure", "io_pressure", "disk")


def _features(value: tuple[str, ...]) -> tuple[str, ...]:
    if set(value) - set(FEATURES) or len(set(value)) != len(value) or not {"cpu", "memory"} <= set(value):
        raise ValueError(f"are different names out of {', '.join(FEATURES)}; cpu and memory must be among them")
    return value


class Smoothing(Section):
    """How short spikes are removed."""

    form: Literal["running_median", "dynamic_ema"] | None = Field(
        None,
        description="Filter that removes short spikes. Empty: running_median, or dynamic_ema in the carico variant. A "
        "median removes a spike entirely and keeps the edge of a step.",
    )
    window: int = Field(
        7,
        ge=3,
        le=31,
        description="Samples of the running median. At 10 Hz the default removes spikes of up to 0.3 s and follows a "
        "step after 0.4 s.",
    )
    publish: bool = Field(
        True,
        description="Publish the smoothed blocks. Without them the table `smoothed` stays empty, and the server stores "
        "less.",
    )
    nodes_max: int = Field(
        100,
        ge=0,
        description="Number of nodes whose smoothed blocks are published: of each partition its share, the nodes that "
        "it saw first. Smoothed blocks are as large as samples, and availability does not need them. The default "
        "covers small clusters, and a choice of nodes to look at in large ones.",
    )


class ModelSettings(Section):
    """How the workload is learned."""

    variant: Literal["default", "carico"] = Field(
        "default",
        description="Set of formulas. carico: every step as the CARICO dissertation defines it, for comparison. The "
        "default is more accurate.",
    )
    features: Annotated[tuple[str, ...], Commas, AfterValidator(_features)] = Field(
        FEATURES,
        description="Quantities that the model learns; cpu and memory must be among them. Availability follows from "
        "cpu and memory alone. The default takes all that an agent measures as a ratio of the node.",
    )
    rank: int = Field(
        3,
        ge=1,
        le=64,
        description="Directions that the carico variant's model keeps. Three change the signal by less than 0.1 %; the "
        "default variant keeps all.",
    )
    tau_seconds: Seconds = Field(
        10,
        description="Time constant of a node's model, in seconds: the weight of a second falls to 1/e in it. The "
        "default averages over noise and follows a change of load within half a minute.",
    )
    global_weight: Fraction = Field(
        0.5,
        description="Share of the global model in a node's signal, 0 to 1; the rest is the node's own model. The "
        "default weighs both equally.",
    )
    silent_seconds: Seconds = Field(
        30,
        description="Seconds of event time without a block after which a node leaves the global model; half of them "
        "if its clock is off by more than that, up to a minute. The default equals the expiry of the scheduler cache.",
    )
    publish_local: bool = Field(
        False,
        description="Publish each node's model on model.local.<node>, once a second, for tools that compare nodes. The "
        "default is off, since no part of spazio reads these messages.",
    )


class Policy(Section):
    """What fits: how much slower pods may become, and what of a node is never theirs."""

    slowdown: float | None = Field(
        None,
        gt=1,
        le=10,
        description="Largest mean slowdown of CPU work that still counts as fitting: the time that work takes, over "
        "the time that it takes alone. Empty: `estimate.slowdown`.",
    )
    eviction_bytes: int = Field(
        100 << 20,
        ge=0,
        description="Memory, in bytes, that must stay available. The default is the kubelet's eviction threshold "
        "(memory.available).",
    )
    whole: bool = Field(
        True,
        description="Round the lower bound down to whole pods. A fraction of a pod cannot be placed; without rounding "
        "the bound is easier to compare.",
    )


class Estimate(Section):
    """How cost and capacity are estimated, and what fits means."""

    form: Literal["composed", "least_squares", "kalman_dual", "kalman_joint", "kalman_delta"] | None = Field(
        None,
        description="Estimator of a pod's cost. Empty: composed, or kalman_dual in the carico variant. composed adds "
        "up the costs of workload classes, and uses least_squares on nodes whose pods' usage is unknown. "
        "least_squares regresses the node's usage on the number of pods. kalman_dual, kalman_joint and kalman_delta "
        "need the carico variant.",
    )
    slowdown: float = Field(
        2.0,
        gt=1,
        le=2,
        description="Mean slowdown at which the blend of utilisation and pressure is 1, and the default of "
        "`policy.slowdown`. At 2 the blend is the mean of both.",
    )
    headroom_cpu: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of a node's CPU that is never given away, 0 to 1. The default is 0, since `policy.slowdown` "
        "limits the use of CPU.",
    )
    headroom_memory: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of a node's memory that is never given away, 0 to 1. The default is 0, since "
        "`policy.eviction_bytes` keeps memory free.",
    )
    memory_seconds: Seconds = Field(
        300,
        description="Seconds for which evidence of a pod's cost counts. Longer memories reduce noise; shorter ones "
        "follow a workload that changes.",
    )
    level_seconds: Seconds = Field(
        1,
        description="Time constant of the idle baseline, in seconds: what the node uses without its pods. The default "
        "follows the system's own load from one second to the next.",
    )
    pod_cores: float = Field(
        0.1,
        gt=0,
        description="CPU of the reference pod, in cores. The default is what kube-scheduler assumes of a pod without "
        "requests.",
    )
    pod_memory_bytes: Bytes = Field(
        200 << 20,
        description="Memory of the reference pod, in bytes. The default is what kube-scheduler assumes of a pod "
        "without requests.",
    )
    prior_deviation: float = Field(
        0.5,
        gt=0,
        description="Relative standard deviation of the reference pod's cost. Larger values give way to evidence "
        "sooner and lower the lower bound of nodes without evidence.",
    )
    max_pods: int = Field(
        110,
        gt=0,
        le=10_000,
        description="Pods that a node may run, where Kubernetes does not state it. The default is the kubelet's.",
    )
    process_noise: float = Field(
        1e-4,
        ge=0,
        description="Process noise (Q) of the Kalman forms. Larger values make the estimate oscillate.",
    )
    settle_seconds: Seconds = Field(
        2,
        description="Seconds after the last container event at which churn ends. Start spikes last up to two seconds.",
    )
    churn_limit_seconds: Seconds = Field(
        30,
        description="Longest churn window, in seconds. Churn that lasts longer is normal for the node, so estimates "
        "then follow fresh usage again.",
    )
    hold_in_churn: bool = Field(
        True,
        description="Stop learning in a churn window, so that start spikes do not count as cost. Turn it off only to "
        "compare.",
    )
    classes: int = Field(
        8,
        ge=0,
        le=64,
        description="Workload classes that are estimated separately on one node. 0: none. Pods of other classes "
        "count together as one more. Each class costs memory and time on every node, so the default is small.",
    )
    change_pods: float = Field(
        0.05,
        ge=0,
        description="Change of availability, in pods, that is reported at once if it is also at least 5 % of what was "
        "reported; smaller changes wait for the next report. The default is too small to affect a placement.",
    )
    report_seconds: Seconds = Field(
        4,
        description="Longest time between two reports of a node, in seconds. It keeps a steady node well within "
        "`cache.expiry_seconds`.",
    )
