"""Where a scenario comes from: a file, the scenarios that come with spazio, or a live cluster."""

import asyncio
from collections.abc import Callable
from functools import partial

from schemas.sections.measurement import Kube
from schemas.settings import SettingsError
from spazio.simulation import scenario
from spazio.simulation.scenario import Scenario, Unreadable


def of(name: str | None, cluster: Kube | None) -> Callable[[], Scenario]:
    """Return what loads the scenario.

    Args:
        name: File or name; None: none is given.
        cluster: How to reach a cluster to take it from; None: no cluster.
    """
    if name is not None and cluster is None:
        return partial(scenario.load, name)
    if name is None and cluster is not None:
        return partial(_live, cluster)
    return _refuse


def _live(settings: Kube) -> Scenario:
    from spazio.simulation import live  # the Kubernetes client is an extra

    try:
        return asyncio.run(live.read(settings))
    except SettingsError as error:
        raise Unreadable(str(error)) from error


def _refuse() -> Scenario:
    raise Unreadable(
        f"name a scenario, one of {', '.join(scenario.packaged())} or a file, or give --from-cluster alone"
    )
