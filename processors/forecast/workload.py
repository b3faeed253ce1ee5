"""Sums and forecasts of workloads as they go over the bus."""

from collections.abc import Iterator, Mapping

from processors.forecast import history, outlook
from processors.forecast.sums import Sum, Workload
from processors.forecast.workloads import Params
from schemas.messages.prediction import MAXIMUM_WORKLOADS, Forecast, Resources, WorkloadSums
from schemas.settings import Settings


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


def messages(partition: int, at_us: int, sums: Mapping[Workload, Sum]) -> Iterator[WorkloadSums]:
    """Yield the sums of a partition as messages that are not too long; one, though there are none."""
    listed = list(sums.items())
    for chunk, start in enumerate(range(0, max(len(listed), 1), MAXIMUM_WORKLOADS)):
        part = listed[start : start + MAXIMUM_WORKLOADS]
        owners, found = [owner for owner, _ in part], [one for _, one in part]
        yield WorkloadSums(
            partition=partition,
            at_us=at_us,
            chunk=chunk,
            namespaces=[owner.namespace for owner in owners],
            kinds=[owner.kind for owner in owners],
            workloads=[owner.name for owner in owners],
            pods=[one.pods for one in found],
            ready=[one.ready for one in found],
            cpu=[one.used[0] for one in found],
            memory=[one.used[1] for one in found],
            requested_cpu=[one.requested[0] for one in found],
            requested_memory=[one.requested[1] for one in found],
            initialized=[one.initialized for one in found],
            initialization_seconds=[one.initialization_seconds for one in found],
        )


def sums_of(message: WorkloadSums) -> dict[Workload, Sum]:
    """Return what a message says; the inverse of `messages`."""
    owners = zip(message.namespaces, message.kinds, message.workloads, strict=True)
    found = zip(
        message.pods,
        message.ready,
        zip(message.cpu, message.memory, strict=True),
        zip(message.requested_cpu, message.requested_memory, strict=True),
        message.initialized,
        message.initialization_seconds,
        strict=True,
    )
    return {Workload(*owner): Sum(*one) for owner, one in zip(owners, found, strict=True)}


def message(found: outlook.Forecast, settings: Settings) -> Forecast:
    """Return a forecast as it is published."""
    by_model = {
        one: Resources(cpu=round(cpu, 4), memory=round(memory)) for one, (cpu, memory) in found.forecasts.items()
    }
    now = found.now
    return Forecast(
        namespace=found.workload.namespace,
        kind=found.workload.kind,
        workload=found.workload.name,
        at_us=found.at_us,
        pods=now.pods,
        ready=now.ready,
        initialization_seconds=round(found.initialization_seconds, 3),
        horizon_seconds=round(found.horizon_seconds, 3),
        observations=found.observations,
        requested=Resources(cpu=now.requested[0], memory=now.requested[1]),
        current=Resources(cpu=round(now.used[0], 4), memory=round(now.used[1])),
        model=found.model,
        forecast=by_model[found.model],
        forecasts=by_model,
        target=settings.forecast.target,
        desired=found.desired,
        raises=found.raises,
    )
