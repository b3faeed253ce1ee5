"""The published tables of the dissertation's chapter 5, as rows that a simulation is held against.

Source: the dissertation, tables 1 to 6: 19 workers of 4 cores and 8 GB. A `bpi` pod computes 2,000 digits of pi, an
`ml` pod trains and infers. Latencies are of an HTTP server beside 1,000 bpi pods; what a simulation has is by how much
a service is slowed down, so they are taken relative to the server alone.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

COUNTS = (100, 250, 500, 750, 1000)
# Table 1: by how many percent jobs of so many bpi pods took longer with the agent, mean and deviation.
OVERHEAD = dict(zip(COUNTS, ((-2.33, 3.29), (-1.19, 2.44), (4.84, 1.25), (1.69, 0.42), (2.27, 0.66)), strict=True))
KUBE, SPAZIO = "kube", "spazio"
_BEST_REQUEST = 0.1  # of bpi pods in tables 5 and 6, as far as it is stated


class Case(NamedTuple):
    """What was run.

    Attributes:
        scheduler: KUBE or SPAZIO.
        bpi: Pods of that kind.
        ml: Pods of that kind.
        request: Cores that a bpi pod requests; None: nothing, as all pods under spazio.
        service: An HTTP server runs beside them.
    """

    scheduler: str
    bpi: int = 0
    ml: int = 0
    request: float | None = None
    service: bool = False


class Published(NamedTuple):
    """One published figure.

    Attributes:
        table: `T2` to `T6`.
        case: What was run.
        figure: Name as in `outcome`.
        value: Seconds; of latencies the ratio to the server alone.
    """

    table: str
    case: Case
    figure: str
    value: float


# Job completion in seconds by the request; None: spazio.
_JOBS: Mapping[float | None, tuple[float, ...]] = {
    0.1: (15.7, 31.7, 56.0, 84.7, 112.0),
    0.2: (15.7, 30.7, 55.0, 79.0, 103.0),
    0.5: (15.7, 32.0, 57.7, 81.0, 104.0),
    1.0: (21.0, 54.7, 96.0, 133.0, 175.0),
    None: (20.3, 35.3, 60.3, 89.0, 109.0),
}
_POD = tuple(f"pod_seconds_{each}" for each in ("mean", "std", "min", "p25", "p50", "p75", "max"))
_PODS: Mapping[float | None, tuple[float, ...]] = {
    0.1: (47.43, 14.59, 7, 39, 52, 57, 73),
    0.5: (9.55, 1.49, 5, 9, 10, 10, 14),
    None: (7.69, 0.99, 5, 7, 8, 8, 11),
}
_ML = ("job_seconds", "pod_seconds_mean", "pod_seconds_std", "pod_seconds_p50", "pod_seconds_max")
_ML_PODS = {
    (KUBE, 100): (144.3, 127.4, 5.3, 126, 138),
    (KUBE, 200): (362.0, 225.2, 36.2, 236, 244),
    (SPAZIO, 100): (189.0, 59.0, 14.6, 61, 94),
    (SPAZIO, 200): (353.3, 64.5, 14.3, 67, 89),
}
_MIXED = {
    (KUBE, 500, 20): 105.7,
    (KUBE, 250, 50): 118.0,
    (KUBE, 100, 100): 149.0,
    (SPAZIO, 500, 20): 88.7,
    (SPAZIO, 250, 50): 115.7,
    (SPAZIO, 100, 100): 192.0,
}
_MIXED_POD = tuple(f"pod_seconds_{each}" for each in ("mean.bpi", "std.bpi", "mean.ml", "std.ml"))
_MIXED_PODS = {KUBE: (28.78, 7.52, 65.25, 10.53), SPAZIO: (7.40, 1.14, 34.50, 7.39)}
_LATENCY = tuple(f"serving_slowdown_{each}" for each in ("min", "p50", "p90", "p95", "p99", "max"))
_ALONE = (0.99, 3.04, 3.78, 4.00, 4.47, 8.32)  # milliseconds
_LATENCIES = {
    KUBE: (1.07, 10.06, 18.61, 22.28, 28.82, 54.49),
    SPAZIO: (1.00, 2.48, 6.09, 7.82, 10.53, 17.39),
}


def rows() -> Iterator[Published]:
    """Yield every published figure of tables 2 to 6."""
    for request, jobs in _JOBS.items():
        for pods, seconds in zip(COUNTS, jobs, strict=True):
            yield Published("T2", _bpi(request, pods), "job_seconds", seconds)
    for request, values in _PODS.items():
        yield from _each("T3", _bpi(request, COUNTS[-1]), _POD, values)
    for (scheduler, pods), values in _ML_PODS.items():
        yield from _each("T4", Case(scheduler, ml=pods), _ML, values)
    for (scheduler, bpi, ml), seconds in _MIXED.items():
        yield Published("T5", _mixed(scheduler, bpi, ml), "job_seconds", seconds)
    for scheduler, values in _MIXED_PODS.items():
        yield from _each("T5", _mixed(scheduler, 500, 20), _MIXED_POD, values)
    for scheduler, values in _LATENCIES.items():
        case = _mixed(scheduler, COUNTS[-1], 0)._replace(service=True)
        ratios = tuple(value / alone for value, alone in zip(values, _ALONE, strict=True))
        yield from _each("T6", case, _LATENCY, ratios)


def _bpi(request: float | None, pods: int) -> Case:
    return Case(SPAZIO if request is None else KUBE, bpi=pods, request=request)


def _mixed(scheduler: str, bpi: int, ml: int) -> Case:
    return Case(scheduler, bpi, ml, _BEST_REQUEST if scheduler == KUBE else None)


def _each(table: str, case: Case, figures: tuple[str, ...], values: tuple[float, ...]) -> Iterator[Published]:
    for figure, value in zip(figures, values, strict=True):
        yield Published(table, case, figure, value)
