"""What others predict, for every time of a whole day at once: N-sigma, RC-like, their maximum, Borg-default.

The definitions are those of Google's simulator (googleinterns/cluster-resource-forecast), which takes one snapshot
after another; here all machines are there all day and each requests one core, so whole days can be computed as arrays.
The grids are wide on purpose: no peer should lose because its best setting was not tried.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from spazio.backtest import score, trace

Array = NDArray[np.float64]

WINDOWS = (24, 60, 120, 288)
WARM = (2, 6, 12, 24)
SIGMAS = np.concatenate((np.arange(0.0, 6.0, 0.25), np.arange(6.0, 15.0, 0.5), np.arange(15.0, 60.0, 3.0)))
FRACTIONS = np.array([0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 1.0])
JOINED = (0, 4, 6, 9, 13)  # places of the percentiles that N-sigma is joined with
PHIS = np.arange(1, 101) / 100
_AT_ONCE = 256


def curves(nodes: list[trace.Percent]) -> Iterator[score.Curve]:
    """Score every peer on one day.

    Args:
        nodes: One entry per draw, (nodes, machines, samples) in percent of a core.
    """
    usage = np.concatenate([usage_of(part) for part in nodes])
    flat = np.broadcast_to(PHIS[:, None, None], (len(PHIS), *usage.shape))
    yield from score.score("Borg-default", [("", 1)], PHIS, flat, usage)
    for window in WINDOWS:
        mean, deviation = moments(usage, window)
        sigma = mean + SIGMAS[:, None, None] * deviation
        central = np.concatenate([percentiles(part, window, FRACTIONS) for part in nodes], axis=1)
        configs = [(f"window {_span(window)}, warm-up {_span(warm)}", warm) for warm in WARM]
        yield from score.score("N-sigma", configs, SIGMAS, sigma, usage)
        yield from score.score("RC-like", configs, FRACTIONS, central, usage)
        for joined in JOINED:
            named = [(f"percentile {FRACTIONS[joined] * 100:g}, {config}", warm) for config, warm in configs]
            yield from score.score("Max", named, SIGMAS, np.maximum(sigma, central[joined]), usage)


def usage_of(nodes: trace.Percent) -> Array:
    """Return usage (nodes, samples) as a share of the limit, of machines (nodes, machines, samples) in percent."""
    total: Array = nodes.sum(axis=1, dtype=np.float64) / (100.0 * nodes.shape[1])
    return total


def moments(usage: Array, window: int) -> tuple[Array, Array]:
    """Return mean and deviation (of a sample) of the last `window` samples, the current one among them.

    Args:
        usage: (nodes, samples).
        window: Samples; fewer at the day's begin.

    Returns:
        Two arrays (nodes, samples); the deviation of a single sample is 0.
    """
    end = np.arange(1, usage.shape[1] + 1)
    begin = np.maximum(end - window, 0)
    # Centred first: squares of what is left lose no digits in the difference of sums.
    middle = usage.mean(axis=1, keepdims=True)
    sums, squares = (np.pad(np.cumsum((usage - middle) ** power, axis=1), ((0, 0), (1, 0))) for power in (1, 2))
    count = end - begin
    mean = (sums[:, end] - sums[:, begin]) / count
    spread = np.maximum(squares[:, end] - squares[:, begin] - count * mean**2, 0.0)
    return mean + middle, np.sqrt(spread / np.maximum(count - 1, 1))


def percentiles(nodes: trace.Percent, window: int, fractions: Array) -> Array:
    """Return the sum of each machine's linear percentiles over the last `window` samples, as a share of the limit.

    Args:
        nodes: (nodes, machines, samples) in percent of a core.
        window: Samples; fewer at the day's begin.
        fractions: (fractions,) 0..1.

    Returns:
        (fractions, nodes, samples).
    """
    count, size, samples = nodes.shape
    machines = nodes.reshape(-1, samples)
    parts = np.concatenate(
        [_percentiles(machines[at : at + _AT_ONCE], window, fractions) for at in range(0, len(machines), _AT_ONCE)],
        axis=1,
    )
    total: Array = parts.reshape(len(fractions), count, size, samples).sum(axis=2) / (100.0 * size)
    return total


def _percentiles(machines: trace.Percent, window: int, fractions: Array) -> Array:
    samples = machines.shape[1]
    whole = np.issubdtype(machines.dtype, np.integer)
    after = np.iinfo(machines.dtype).max if whole else np.inf  # sorts behind every sample
    padded = np.pad(machines, ((0, 0), (window - 1, 0)), constant_values=after)
    ordered = np.sort(np.lib.stride_tricks.sliding_window_view(padded, window, axis=1), axis=2)
    count = np.minimum(np.arange(samples) + 1, window)
    position = fractions[:, None] * (count - 1)
    below = np.floor(position).astype(np.intp)
    above = np.minimum(below + 1, count - 1)
    time = np.arange(samples)
    low = ordered[:, time, below].astype(np.float64)
    high = ordered[:, time, above].astype(np.float64)
    between: Array = (low + (high - low) * (position - below)).transpose(1, 0, 2)
    return between


def _span(samples: int) -> str:
    seconds = samples * trace.SAMPLE_SECONDS
    return f"{seconds // 3600} h" if seconds % 3600 == 0 else f"{seconds // 60} min"
