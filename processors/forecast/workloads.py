"""Forecasts of all workloads of the cluster, out of the partitions' sums: a fold over messages in stream order.

A period of event time ends when a partition reports a later one; then the last sums of the partitions that are
not silent are added up. Until each partition has been heard, or has been silent for too long, a sum would be a part
taken for the whole, and nothing is observed.
"""

from collections.abc import Mapping
from dataclasses import astuple
from typing import Any, NamedTuple

from processors.forecast import forecast, history, model, share, sums
from processors.forecast.forecast import Forecast
from processors.forecast.history import History
from processors.forecast.scoring.accuracy import Accuracy
from processors.forecast.sums import Greatest, Sum, Workload
from processors.partition.plan import Watermark
from processors.rows import snapshot

FORMAT = 1
_LOST = 10  # times as long as it takes for a partition to count as silent


class Params(NamedTuple):
    """What the settings say.

    Attributes:
        observed: How often, and how far back.
        model: Whose forecast is the chosen one.
        target: Utilisation that is aimed at, above 0.
        silent_seconds: So long the first forecasts wait for all partitions. Sums of one that are ten times as old are
            left out: it is taken over by then, and until then its pods run on.
        fitted: Workloads, those with most pods, that a model which fits each series is asked about; a fit takes
            three milliseconds, there are two for each workload and period, and other folds wait meanwhile.
    """

    observed: history.Params = history.Params()
    model: str = model.REFERENCE
    target: float = 0.8
    silent_seconds: float = 30.0
    fitted: int = 100


class Forecasts:
    """Last sums of every partition, the observations of every workload, and how right its forecasts were.

    Attributes:
        params: Settings; model and target may be set between two folds.
    """

    def __init__(self, partitions: int, params: Params) -> None:
        """Start empty."""
        self._partitions, self.params = partitions, params
        self._seconds = params.observed.seconds
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._sums: dict[int, tuple[int, dict[Workload, Sum]]] = {}
        self._watermark = Watermark()  # in periods
        self._history = History(self.params.observed)
        self._accuracy = Accuracy(self._seconds)

    def fold(self, partition: int, at_us: int, reported: Mapping[Workload, Sum]) -> list[Forecast]:
        """Take the sums of a partition over a period; return the forecasts if that ends an earlier one.

        Sums of one period in several messages are put together; what comes twice counts once.

        Raises:
            ValueError: There is no such partition.
        """
        if not 0 <= partition < self._partitions:
            raise ValueError(f"partition: {partition} of {self._partitions}")
        period = at_us // (self._seconds * 1_000_000)
        ended, after = self._watermark.second, self._watermark.seen(period, str(partition))
        forecasts = self._end(ended) if ended and ended != after.second else []
        self._watermark = after
        at, before = self._sums.get(partition, (period, {}))
        self._sums[partition] = period, ({**before, **reported} if at == period else dict(reported))
        return forecasts

    def _end(self, period: int) -> list[Forecast]:
        silent = self.params.silent_seconds / self._seconds
        if len(self._sums) < self._partitions and period - self._watermark.since < silent:
            return []
        live = [reported for _, (at, reported) in sorted(self._sums.items()) if abs(at - period) <= _LOST * silent]
        at_us = period * self._seconds * 1_000_000
        total = share.bounded(sums.add(live))
        self._accuracy.score(at_us, {name: own.used for name, own in total.items()})
        seen = self._history.observe(at_us, total)
        made = forecast.forecasts(
            at_us, seen, chosen=self.params.model, target=self.params.target, fitted=self.params.fitted
        )
        horizons, amounts = [each.horizon_seconds for each in made], {each.workload: each.forecasts for each in made}
        self._accuracy.wait(at_us, horizons, amounts)
        return [each._replace(accuracy=self._accuracy.of(each.workload)) for each in made]

    def snapshot(self) -> bytes:
        """Return the state as bytes."""
        names, arrays = self._history.dump()
        judged, scores = self._accuracy.dump()
        header = {
            "format": FORMAT,
            "seconds": self._seconds,
            "watermark": astuple(self._watermark),
            "sums": [[number, at, list(reported.items())] for number, (at, reported) in self._sums.items()],
            "names": names,
            "judged": judged,
        }
        return snapshot.pack(header, arrays | scores)

    def restore(self, body: bytes) -> None:
        """Take over a state that `snapshot` made.

        Raises:
            ValueError: The bytes are damaged, or of another format or period.
        """
        header, arrays = snapshot.unpack(body)
        try:
            if header["format"] != FORMAT or header["seconds"] != self._seconds:
                raise ValueError(f"state has format {header['format']} and a period of {header['seconds']} s")
            reported = {number: (at, dict(_unpacked(item) for item in items)) for number, at, items in header["sums"]}
            watermark = Watermark.of(header["watermark"])
            self._history.load([Workload(*name) for name in header["names"]], arrays)
            # States of before have no accuracy.
            self._accuracy.load([Workload(*name) for name in header.get("judged", ())], arrays)
            self._watermark, self._sums = watermark, reported
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"state is damaged: {error!r}") from error


def _unpacked(item: list[list[Any]]) -> tuple[Workload, Sum]:
    name, (pods, ready, used, requested, initialized, seconds, *shares) = item
    own = Sum(pods, ready, (used[0], used[1]), (requested[0], requested[1]), initialized, seconds)
    if shares:  # states of before have none
        nodes, measured, (cpu, memory) = shares
        own = own._replace(nodes=nodes, measured=measured, greatest=(Greatest(*cpu), Greatest(*memory)))
    return Workload(*name), own
