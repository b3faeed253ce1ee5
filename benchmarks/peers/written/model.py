"""Which way the node's usage goes, and how far it may: `second_moment`, `direction` and `capacity_signal`."""

import math
from typing import NamedTuple

import numpy as np

from benchmarks.peers.written.series import FEATURES, Array
from schemas.settings import Settings


class Expected(NamedTuple):
    """What `direction` and `capacity_signal` say of the node."""

    signal: float
    gap: float
    explained: float


class Model:
    """The second moment of usage above the baseline."""

    def __init__(self, settings: Settings) -> None:
        """Start without any block."""
        self._estimate, self._tau_seconds = settings.estimate, settings.model.tau_seconds
        self._moment = np.zeros((len(FEATURES), len(FEATURES)))

    def learn(self, features: Array, baseline: list[float], elapsed: float, *, first: bool, quick: bool) -> None:
        """Follow `second_moment`, of usage above the baseline; `quick`: no feature is missing."""
        above = np.maximum(features - np.array(baseline)[:, None], 0.0)
        if not quick or math.isnan(sum(baseline)):
            above[np.isnan(features).all(axis=1)] = 0.0
            above = above[:, ~np.isnan(above).any(axis=0)]
        count = above.shape[1]
        if count and elapsed:
            share = 1.0 if first else -math.expm1(-elapsed / self._tau_seconds)
            self._moment = (1 - share) * self._moment + share / count * (above @ above.T)

    def expected(self, usage: list[float]) -> Expected:
        """Follow `direction` and `capacity_signal`."""
        values, vectors = np.linalg.eigh(self._moment)
        strengths, vector = values.tolist(), vectors[:, -1].tolist()
        first = max(strengths[-1], 0.0)
        gap = max(strengths[-2], 0.0) / first if first else 1.0
        explained = min(first / float(self._moment.trace()), 1.0) if first else 0.0
        size, least = math.sqrt(first), 1 / self._estimate.max_pods
        if not first:
            vector = [len(FEATURES) ** -0.5] * len(FEATURES)
        headroom = (self._estimate.headroom_cpu, self._estimate.headroom_memory, 0.0, 0.0, 0.0)
        fits = [
            (1 - kept - used) / max(size * abs(share), least)
            for kept, used, share in zip(headroom, usage, vector, strict=True)
            if not math.isnan(used)
        ]
        signal = min(max(min(fits), 0.0), float(self._estimate.max_pods)) if fits else math.nan
        return Expected(signal, gap, explained)
