"""Schedulers that are compared: kube-scheduler's own scores by requests, Trimaran, and spazio's extender."""

from collections.abc import Callable, Mapping
from functools import partial

from spazio.simulation.scenario import PRODUCT, SCHEDULERS, Scenario
from spazio.simulation.schedulers.by_requests import ByRequests
from spazio.simulation.schedulers.product import Product
from spazio.simulation.schedulers.protocol import Scheduler
from spazio.simulation.telemetry import Voice


def _by_requests(profile: str, _scenario: Scenario, voice: Voice, seed: int) -> Scheduler:
    return ByRequests(voice, seed, profile)


Make = Mapping[str, Callable[[Scenario, Voice, int], Scheduler]]
MAKE: Make = {
    **{name: partial(_by_requests, name) for name in SCHEDULERS if name not in PRODUCT},
    "spazio": lambda scenario, voice, _: Product(scenario, voice, "default"),
    "reference": lambda scenario, voice, _: Product(scenario, voice, "carico"),
}
