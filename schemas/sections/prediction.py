"""The sections of peak prediction, of the reject signal and of workload forecasts."""

from typing import Literal, get_args

from pydantic import Field

from schemas.messages.prediction import Formula
from schemas.sections.section import RELOAD, Bytes, Fraction, Seconds, Section

PeakModel = Literal["calibrated", "n_sigma", "pods_n_sigma", "borg_default", "resource_central", "max", "koordinator"]
PEAK_MODELS: tuple[str, ...] = get_args(PeakModel)


class Predict(Section):
    """How peaks are predicted, and what of them is given to lower tiers."""

    enabled: bool = Field(
        True,
        description="Predict the peaks of nodes and pods. Off: no predictions and no reclaimable resources, and about "
        "half the processors' work.",
    )
    model: PeakModel = Field(
        "calibrated",
        json_schema_extra=RELOAD,
        description="Peak model that decides what can be reclaimed: calibrated, n_sigma, pods_n_sigma, borg_default, "
        "resource_central, max or koordinator, as docs/predictions.md describes them. Predictions contain the peaks of "
        "all models. The default is the one that learns whether its stated probability holds.",
    )
    violation: float = Field(
        0.05,
        gt=0,
        lt=1,
        json_schema_extra=RELOAD,
        description="Probability, 0 to 1, with which usage may exceed the peak of `calibrated`. Smaller values reclaim "
        "less.",
    )
    sigma: float = Field(
        5,
        ge=0,
        le=100,
        json_schema_extra=RELOAD,
        description="N of the models n_sigma and pods_n_sigma: the peak is the mean plus N standard deviations. The "
        "default is that of Bashir et al. (EuroSys 2021).",
    )
    percentile_cpu: Fraction = Field(
        0.95,
        json_schema_extra=RELOAD,
        description="Quantile of CPU usage, 0 to 1, that koordinator and resource_central take for the peak. The "
        "default is Koordinator's.",
    )
    percentile_memory: Fraction = Field(
        0.98,
        json_schema_extra=RELOAD,
        description="Quantile of memory usage, as `predict.percentile_cpu`. It is higher, since memory cannot be "
        "throttled. The default is Koordinator's.",
    )
    half_life_cpu_seconds: Seconds = Field(
        12 * 3600,
        json_schema_extra=RELOAD,
        description="Age, in seconds, at which a CPU sample has half its weight. The default is Koordinator's.",
    )
    half_life_memory_seconds: Seconds = Field(
        24 * 3600,
        json_schema_extra=RELOAD,
        description="Age, in seconds, at which a memory sample has half its weight. The default is Koordinator's.",
    )
    margin: float | None = Field(
        None,
        ge=0,
        le=10,
        json_schema_extra=RELOAD,
        description="Relative safety margin on top of every model's peaks, up to the whole machine. Empty: 0.1 for "
        "koordinator, which is Koordinator's, and none for the others, which state or learn theirs.",
    )
    overcommit: float = Field(
        1.1,
        ge=1,
        le=100,
        json_schema_extra=RELOAD,
        description="Rate of the model borg_default: its peak is the sum of the requests divided by this rate.",
    )
    cold_start_seconds: float = Field(
        24 * 3600,
        ge=0,
        le=86_400 * 366,
        json_schema_extra=RELOAD,
        description="Age, in seconds, below which the requests of a pod are not reclaimed, unless its workload is "
        "known. The default of 24 h covers one daily peak.",
    )
    evidence_seconds: float = Field(
        600,
        ge=0,
        le=86_400 * 366,
        json_schema_extra=RELOAD,
        description="Seconds for which usage of a pod must have been seen before its requests are reclaimed, whatever "
        "its age. The default protects pods after the processors have lost their state.",
    )
    formula: Formula = Field(
        "reclaim",
        json_schema_extra=RELOAD,
        description="Formula of the Mid tier. reclaim: requests less the predicted peak. mixed: the same plus what is "
        "neither requested nor used by the system. shipped: what Koordinator's code computes. The default lends only "
        "what is already requested.",
    )
    reclaim_ratio: Fraction = Field(
        1.0,
        json_schema_extra=RELOAD,
        description="Share of the production pods' requests, 0 to 1, that can be reclaimed. The default relies on the "
        "predicted peak alone.",
    )
    mid_rise: float = Field(
        0.1,
        gt=0,
        le=3600,
        json_schema_extra=RELOAD,
        description="Share of a node by which what the Mid tier gets may rise in an hour; it falls at once. `shipped` "
        "is not bound. The default regains half a node in five hours, so a rise that a later dip takes back invites "
        "few pods. 3600: as fast as predictions.",
    )
    threshold_cpu: Fraction = Field(
        1.0,
        json_schema_extra=RELOAD,
        description="Largest share of a node's CPU that the Mid tier gets, 0 to 1. The default sets no further limit.",
    )
    threshold_memory: Fraction = Field(
        1.0,
        json_schema_extra=RELOAD,
        description="Largest share of a node's memory that the Mid tier gets, 0 to 1. The default sets no further "
        "limit.",
    )
    unallocated_ratio: Fraction = Field(
        0.0,
        json_schema_extra=RELOAD,
        description="Share of the resources without a request, 0 to 1, that the formula `shipped` adds. The default "
        "adds none, since new production pods may need them.",
    )
    update_seconds: int = Field(
        30,
        ge=1,
        le=3600,
        description="Seconds of usage that become one sample of the predictor. The default is that of Koordinator's "
        "proposal.",
    )
    check_seconds: int = Field(
        20,
        ge=1,
        le=3600,
        description="Seconds between two checks whether a prediction has changed. The default is that of Koordinator's "
        "proposal.",
    )
    report_seconds: int = Field(
        60,
        ge=1,
        le=86_400,
        json_schema_extra=RELOAD,
        description="Seconds after which a changed prediction is published. Shorter intervals send more messages for "
        "changes that nothing acts on.",
    )
    force_seconds: int = Field(
        600,
        ge=1,
        le=86_400,
        json_schema_extra=RELOAD,
        description="Seconds after which an unchanged prediction is published again, so that readers can recognise a "
        "stale one.",
    )
    change: Fraction = Field(
        0.05,
        json_schema_extra=RELOAD,
        description="Relative change above which a prediction is published at the next check, before "
        "`predict.report_seconds` have passed.",
    )
    horizon_seconds: Seconds = Field(
        3600,
        description="Seconds that a prediction looks ahead. Its accuracy is measured after that time. Longer horizons "
        "reclaim less. Another horizon keeps what was learned; only the scores start again.",
    )
    expiration_seconds: Seconds = Field(
        1800,
        description="Seconds after which the predictor forgets a pod without facts and without usage. It forgets "
        "silent nodes after an hour. The limit bounds memory.",
    )
    workloads: int = Field(
        1000,
        ge=0,
        le=100_000,
        description="Workloads of a partition whose usage is kept for their next pods after the last pod has ended. 0: "
        "none. The limit bounds memory.",
    )
    checkpoint_seconds: Seconds = Field(
        60,
        description="Seconds between two checkpoints of the predictor, and so the longest replay after a crash. The "
        "state is large and changes slowly, so the interval is longer than `process.checkpoint_seconds`.",
    )


class Reject(Section):
    """PRONTO's reject signal."""

    enabled: bool = Field(
        True,
        description="Compute PRONTO's reject signal of each node. Turn it off where one core serves thousands of "
        "nodes: the signal then costs too much.",
    )
    threshold: Fraction = Field(
        0.2,
        description="Share of the directions' weight, 0 to 1, that must spike at once for a rejection. Smaller values "
        "reject more often.",
    )
    report_seconds: Seconds = Field(
        4, description="Longest time between two reports of a node, in seconds. The default is that of availability."
    )
    subspace: Literal["local", "global"] = Field(
        "local",
        description="Directions that a node's usage is projected on. local: the node's own. global: those of all "
        "nodes, merged as in PRONTO's federation. docs/reject.md compares the two. The default needs no other node.",
    )
    merge_seconds: int = Field(
        5,
        ge=1,
        le=3600,
        description="Seconds of event time between two merges of the nodes' directions, where `reject.subspace` is "
        "global. The default is short beside the 50 s or so that a node's directions remember.",
    )


class Forecast(Section):
    """How workloads are forecast, for predictive scaling."""

    enabled: bool = Field(True, description="Forecast the usage of workloads. Without workloads this costs nothing.")
    seconds: int = Field(
        15,
        ge=1,
        le=3600,
        description="Seconds between two observations of a workload. The default is the period of the "
        "HorizontalPodAutoscaler.",
    )
    model: str = Field(
        "smoothing",
        json_schema_extra=RELOAD,
        description="Forecast model that decides: smoothing, linear or holt; forecasts also contain the value of "
        "smoothing. The default weighs exponential smoothing, trends and the last value by how each has done on the "
        "workload. linear is a straight line through the history, and holt needs the extra `forecast`.",
    )
    target: float = Field(
        0.8,
        gt=0,
        le=1,
        json_schema_extra=RELOAD,
        description="Utilisation of the requests, 0 to 1, from which a forecast derives the number of pods. The rest "
        "is reserve for errors of the forecast.",
    )
    history_multiple: float = Field(
        2,
        ge=1,
        le=1000,
        description="Initialization times for which observations are kept. A longer history follows a ramp late.",
    )
    initialization_seconds: Seconds = Field(
        60,
        description="Seconds that a new pod needs until it is ready, assumed for a workload until one of its pods has "
        "been ready. It is also how far ahead such a forecast looks.",
    )
    memory_bytes: Bytes = Field(
        64 << 20,
        description="Size limit of all observations of a processor, in bytes; the oldest are dropped first.",
    )
