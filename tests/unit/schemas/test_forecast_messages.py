"""Sums and forecasts on the bus: nothing is lost on the way, however many workloads there are."""

import json

import pytest

from processors.forecast import workload
from processors.forecast.sums import Greatest, Sum, Workload
from processors.forecast.workloads import Forecasts
from schemas import codec, settings
from schemas.live import Live
from schemas.messages.prediction import MAXIMUM_WORKLOADS, Forecast, WorkloadSums
from spazio.service import folding
from spazio.service.folding import ProcessorFold
from tests.support.processors.predicted import sums

PERIOD_US = 15_000_000


def named(count: int) -> dict[Workload, Sum]:
    return {
        Workload("shop", "Deployment", f"w{number}"): Sum(
            2, 1, (0.25 * number, 1e6), (2.0, 3e6), 1, 12.5, 2, 2, (Greatest(0.2 * number, 1), Greatest(6e5, 1))
        )
        for number in range(count)
    }


@pytest.mark.parametrize("count", [0, 1, MAXIMUM_WORKLOADS, 2 * MAXIMUM_WORKLOADS + 1])
def test_sums_come_back_as_they_were_in_messages_that_are_not_too_long(count: int) -> None:
    reports = list(workload.messages(3, PERIOD_US, named(count)))
    assert len(reports) == max(1, -(-count // MAXIMUM_WORKLOADS))
    back: dict[Workload, Sum] = {}
    for message in reports:
        payload = codec.encode(message)
        assert len(payload) < 1 << 20
        back |= workload.sums_of(codec.decode(WorkloadSums, payload))
    assert back == named(count)


def test_sums_of_processors_of_before_are_read_without_shares_of_nodes() -> None:
    (message,) = workload.messages(0, PERIOD_US, named(2))
    older = json.loads(codec.encode(message))
    for name in ("nodes", "measured", *(each for each in older if each.startswith("greatest_"))):
        del older[name]
    back = workload.sums_of(codec.decode(WorkloadSums, json.dumps(older).encode()))
    assert back == {
        owner: own._replace(nodes=0, measured=0, greatest=Sum().greatest) for owner, own in named(2).items()
    }


def fold(**given: str) -> ProcessorFold[Forecasts]:
    return folding.forecast(Live(settings.load(given, environ={})), 1)


def ramp(number: int) -> bytes:
    """Return the sums of a workload whose load rises by a tenth of a core each period."""
    used = Sum(2, 2, (1.0 + 0.1 * number, 1e9), (4.0, 4e9), 2, 120.0)
    (message,) = workload.messages(0, number * PERIOD_US, {Workload("shop", "Deployment", "my.web"): used})
    return codec.encode(message)


def test_a_ramp_is_carried_on_and_published_under_namespace_and_owner() -> None:
    made, refused = fold().fold([("spazio.workloads.partition.0", ramp(number)) for number in range(100, 120)])
    assert not refused
    last = codec.decode(Forecast, made[-1].row.payload)
    assert made[-1].row.subject == "spazio.forecast.shop.Deployment=2Fmy_web"
    assert (last.pods, last.model, last.raises, last.initialization_seconds) == (2, "smoothing", True, 60.0)
    # 60 seconds of initialization are four periods ahead.
    assert last.forecast.cpu == pytest.approx(last.current.cpu + 0.4, rel=0.05)


def test_what_is_no_sum_is_refused_and_the_rest_folded() -> None:
    messages = [
        ("s", b"{}"),
        ("s", codec.encode(sums(partition=7))),
        *(("s", ramp(number)) for number in range(100, 112)),
    ]
    made, refused = fold().fold(messages)
    assert [message.index for message in refused] == [0, 1]
    assert "partition" in refused[1].reason
    assert made


def test_a_restored_fold_goes_on_as_one_that_was_never_stopped() -> None:
    messages = [("s", ramp(number)) for number in range(100, 130)]
    whole, _ = fold().fold(messages)
    first, second = fold(), fold()
    begun, _ = first.fold(messages[:15])
    state = first.snapshot()
    assert state is not None
    second.restore(state)
    gone_on, _ = second.fold(messages[15:])
    assert [output.row for output in (*begun, *gone_on)] == [output.row for output in whole]
