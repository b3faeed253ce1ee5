"""The published tables of the dissertation's chapter 5 that the simulation is held against, in seconds.

Source: the dissertation, tables 2 and 3: 19 workers of 4 cores and 8 GB, pods that compute 2,000 digits of pi.
"""

from collections.abc import Mapping

COUNTS = (100, 250, 500, 750, 1000)
# Job completion by the CPU request that kube-scheduler sees; None: spazio, without requests.
JOBS: Mapping[float | None, tuple[float, ...]] = {
    0.1: (15.7, 31.7, 56.0, 84.7, 112.0),
    0.2: (15.7, 30.7, 55.0, 79.0, 103.0),
    0.5: (15.7, 32.0, 57.7, 81.0, 104.0),
    1.0: (21.0, 54.7, 96.0, 133.0, 175.0),
    None: (20.3, 35.3, 60.3, 89.0, 109.0),
}
# Pod completion at 1,000 pods: mean, median, maximum.
PODS: Mapping[float | None, tuple[float, float, float]] = {
    0.1: (47.43, 52.0, 73.0),
    0.5: (9.55, 10.0, 14.0),
    None: (7.69, 8.0, 11.0),
}
POD_FIGURES = ("pod_seconds_mean", "pod_seconds_p50", "pod_seconds_max")
