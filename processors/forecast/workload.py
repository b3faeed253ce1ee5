"""Sums and forecasts of workloads as they go over the bus."""

import json
from collections.abc import Iterator, Mapping

from processors.forecast import forecast as made
from processors.forecast import history
from processors.forecast.sums import Greatest, Sum, Workload
from processors.forecast.workloads import Params
from schemas.messages.prediction import MAXIMUM_WORKLOADS, Forecast, ForecastAccuracy, Resources, WorkloadSums
from schemas.settings import Settings

# A server takes 1 MiB. A thousand workloads with names of the longest that Kubernetes knows stay below that.
_MOST_BYTES = 960 << 10
_NUMBER_BYTES = 350  # at most, of one workload's fourteen numbers


def params(settings: Settings) -> Params:
    """Return what settings say of forecasts."""
    own = settings.forecast
    observed = history.Params(own.seconds, own.history_multiple, own.initialization_seconds, own.memory_bytes)
    return Params(observed, own.model, own.target, max(settings.model.silent_seconds, 2.0 * own.seconds))


def name(workload: Workload) -> str:
    """Return what stands in the subject beside the namespace.

    >>> name(Workload("shop", "Deployment", "web"))
    'Deployment/web'
    """
    return f"{workload.kind}/{workload.name}"


def _parts(listed: list[tuple[Workload, Sum]]) -> Iterator[list[tuple[Workload, Sum]]]:
    """Yield workloads that fit into one message: so many, and so many bytes of names."""
    part: list[tuple[Workload, Sum]] = []
    size = 0
    for owner, own in listed:
        own_bytes = _NUMBER_BYTES + sum(len(json.dumps(text, ensure_ascii=False).encode()) for text in owner)
        if part and (len(part) == MAXIMUM_WORKLOADS or size + own_bytes > _MOST_BYTES):
            yield part
            part, size = [], 0
        part.append((owner, own))
        size += own_bytes
    yield part


def messages(partition: int, at_us: int, sums: Mapping[Workload, Sum]) -> Iterator[WorkloadSums]:
    """Yield the sums of a partition as messages that are not too long; one, though there are none."""
    for chunk, part in enumerate(_parts(list(sums.items()))):
        owners, values = [owner for owner, _ in part], [own for _, own in part]
        yield WorkloadSums(
            partition=partition,
            at_us=at_us,
            chunk=chunk,
            namespaces=[owner.namespace for owner in owners],
            kinds=[owner.kind for owner in owners],
            workloads=[owner.name for owner in owners],
            pods=[own.pods for own in values],
            ready=[own.ready for own in values],
            cpu=[own.used[0] for own in values],
            memory=[own.used[1] for own in values],
            requested_cpu=[own.requested[0] for own in values],
            requested_memory=[own.requested[1] for own in values],
            initialized=[own.initialized for own in values],
            initialization_seconds=[own.initialization_seconds for own in values],
            nodes=[own.nodes for own in values],
            measured=[own.measured for own in values],
            greatest_cpu=[own.greatest[0].used for own in values],
            greatest_cpu_pods=[own.greatest[0].pods for own in values],
            greatest_memory=[own.greatest[1].used for own in values],
            greatest_memory_pods=[own.greatest[1].pods for own in values],
        )


def sums_of(message: WorkloadSums) -> dict[Workload, Sum]:
    """Return what a message says; the inverse of `messages`."""
    none = [0] * len(message.workloads)  # for what the processors of before leave out
    owners = zip(message.namespaces, message.kinds, message.workloads, strict=True)
    columns = zip(
        message.pods,
        message.ready,
        zip(message.cpu, message.memory, strict=True),
        zip(message.requested_cpu, message.requested_memory, strict=True),
        message.initialized,
        message.initialization_seconds,
        message.nodes or none,
        message.measured or none,
        zip(
            map(Greatest, message.greatest_cpu or none, message.greatest_cpu_pods or none),
            map(Greatest, message.greatest_memory or none, message.greatest_memory_pods or none),
            strict=True,
        ),
        strict=True,
    )
    return {Workload(*owner): Sum(*fields) for owner, fields in zip(owners, columns, strict=True)}


def message(forecast: made.Forecast, settings: Settings) -> Forecast:
    """Return a forecast as it is published."""
    by_model = {
        model: Resources(cpu=round(cpu, 4), memory=round(memory)) for model, (cpu, memory) in forecast.forecasts.items()
    }
    accuracy = {
        model: ForecastAccuracy(**{name: round(figure, 4) for name, figure in scores._asdict().items()})
        for model, scores in forecast.accuracy.items()
    }
    now = forecast.now
    return Forecast(
        namespace=forecast.workload.namespace,
        kind=forecast.workload.kind,
        workload=forecast.workload.name,
        at_us=forecast.at_us,
        pods=now.pods,
        ready=now.ready,
        initialization_seconds=round(forecast.initialization_seconds, 3),
        horizon_seconds=round(forecast.horizon_seconds, 3),
        observations=forecast.observations,
        requested=Resources(cpu=now.requested[0], memory=now.requested[1]),
        current=Resources(cpu=round(now.used[0], 4), memory=round(now.used[1])),
        model=forecast.model,
        forecast=by_model[forecast.model],
        forecasts=by_model,
        target=settings.forecast.target,
        desired=forecast.desired,
        raises=forecast.raises,
        accuracy=accuracy or None,
    )
