"""The sections of the settings that say how peaks are predicted, jobs rejected, and workloads forecast."""

from typing import Literal, get_args

from pydantic import Field

from schemas.messages.prediction import Formula
from schemas.sections.core import RELOAD, Bytes, Fraction, Seconds, Section

PeakModel = Literal["calibrated", "n_sigma", "pods_n_sigma", "borg_default", "resource_central", "max", "koordinator"]
PEAK_MODELS: tuple[str, ...] = get_args(PeakModel)


class Predict(Section):
    """How peaks are predicted, and what of them is given to lower tiers."""

    enabled: bool = Field(True, description="predict peaks of nodes and pods; as much work as availability")
    model: PeakModel = Field(
        "calibrated", json_schema_extra=RELOAD, description="model whose peak is the chosen one; all are published"
    )
    violation: float = Field(
        0.05, gt=0, lt=1, json_schema_extra=RELOAD, description="probability with which calibrated may be exceeded"
    )
    sigma: float = Field(5, ge=0, le=100, json_schema_extra=RELOAD, description="N of N-sigma; EuroSys'21 has 5")
    percentile_cpu: Fraction = Field(
        0.95, json_schema_extra=RELOAD, description="of the histograms and of Resource Central; Koordinator's"
    )
    percentile_memory: Fraction = Field(
        0.98, json_schema_extra=RELOAD, description="as percentile_cpu; memory cannot be throttled"
    )
    half_life_cpu_seconds: Seconds = Field(
        12 * 3600, json_schema_extra=RELOAD, description="age at which a CPU sample counts half; Koordinator's"
    )
    half_life_memory_seconds: Seconds = Field(
        24 * 3600, json_schema_extra=RELOAD, description="age at which a memory sample counts half; Koordinator's"
    )
    margin: float = Field(0.1, ge=0, le=10, json_schema_extra=RELOAD, description="added to what is predicted of pods")
    overcommit: float = Field(
        1.1, ge=1, le=100, json_schema_extra=RELOAD, description="Borg-default: requests are this often given away"
    )
    cold_start_seconds: float = Field(
        24 * 3600,
        ge=0,
        le=86_400 * 366,
        json_schema_extra=RELOAD,
        description="nothing of a younger pod is reclaimed, unless its workload is known; a day has its peak",
    )
    evidence_seconds: float = Field(
        600,
        ge=0,
        le=86_400 * 366,
        json_schema_extra=RELOAD,
        description="nothing of a pod is reclaimed before it was seen so long, however old it is",
    )
    formula: Formula = Field(
        "reclaim",
        json_schema_extra=RELOAD,
        description="Mid-tier: requests less peak; mixed adds what is not requested; shipped is Koordinator's code",
    )
    reclaim_ratio: Fraction = Field(1.0, json_schema_extra=RELOAD, description="share of prod requests that counts")
    threshold_cpu: Fraction = Field(1.0, json_schema_extra=RELOAD, description="most of a node's CPU for Mid-tier")
    threshold_memory: Fraction = Field(
        1.0, json_schema_extra=RELOAD, description="most of a node's memory for Mid-tier"
    )
    unallocated_ratio: Fraction = Field(
        0.0, json_schema_extra=RELOAD, description="shipped formula: share of what is not requested"
    )
    update_seconds: int = Field(30, ge=1, le=3600, description="usage of so long becomes one sample; the proposal's")
    check_seconds: int = Field(20, ge=1, le=3600, description="changes are looked for so often; the proposal's")
    report_seconds: int = Field(60, ge=1, le=86_400, json_schema_extra=RELOAD, description="what has changed is told")
    force_seconds: int = Field(600, ge=1, le=86_400, json_schema_extra=RELOAD, description="told though it is the same")
    change: Fraction = Field(0.05, json_schema_extra=RELOAD, description="a larger change is told at the next check")
    horizon_seconds: Seconds = Field(3600, description="how far ahead peaks are predicted, and held to account")
    expiration_seconds: Seconds = Field(
        1800, description="a pod without facts that is unheard of for so long is forgotten; nodes are after an hour"
    )
    workloads: int = Field(1000, ge=0, le=100_000, description="workloads of a partition whose past new pods inherit")
    checkpoint_seconds: Seconds = Field(60, description="state is large and moves slowly; a crash replays so much")


class Reject(Section):
    """PRONTO's reject signal."""

    enabled: bool = Field(True, description="follow each node's leading directions; off at thousands of nodes a core")
    threshold: Fraction = Field(0.2, description="share of the directions' weight that must spike at once")
    report_seconds: Seconds = Field(4, description="longest time between two reports of a node")


class Forecast(Section):
    """How workloads are forecast, for predictive scaling."""

    enabled: bool = Field(True, description="forecast workloads; nothing happens where there are none")
    seconds: int = Field(15, ge=1, le=3600, description="one observation of each workload so often; the HPA's period")
    model: str = Field("linear", json_schema_extra=RELOAD, description="model whose forecast is the chosen one")
    target: float = Field(0.8, gt=0, le=1, json_schema_extra=RELOAD, description="utilisation of the requests aimed at")
    history_multiple: float = Field(
        2, ge=1, le=1000, description="observations are kept for so many initialization times; more answer a ramp late"
    )
    initialization_seconds: Seconds = Field(60, description="where no pod of a workload has been ready yet")
    memory_bytes: Bytes = Field(64 << 20, description="bound on all observations; the oldest go first")
