"""Shadow mode decides on the replay of a run what the live form decided in it, in bursts on nodes that fill."""

from collections.abc import Sequence

import pytest

from schemas.messages.placement import Decision
from spazio.simulation import engine, scenario
from spazio.simulation.scenario import Scenario
from spazio.simulation.schedulers.product import Product
from spazio.simulation.telemetry import Voice


class Live(Product):
    """Keeps what it chooses for each attempt."""

    def __init__(self, given: Scenario, voice: Voice) -> None:
        super().__init__(given, voice, "default")
        self.chosen: list[int | None] = []

    async def place(self, pod: int, nodes: Sequence[str], now: float) -> int | None:
        self.chosen.append(await super().place(pod, nodes, now))
        return self.chosen[-1]


class Shadow(Product):
    """Decides as if, with a state of its own, and then places each pod where a live run did."""

    def __init__(self, given: Scenario, voice: Voice, chosen: Sequence[int | None]) -> None:
        self.accounts: list[Decision] = []
        super().__init__(given, voice, "default", "shadow", self.accounts.append)
        self._chosen = iter(chosen)

    async def place(self, pod: int, nodes: Sequence[str], now: float) -> int | None:
        await super().place(pod, nodes, now)
        return next(self._chosen)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), [("bpi-1000", 7), ("change-of-mix", 8), ("mixed-500", 9)])
async def test_shadow_and_live_decisions_are_equal_on_a_replay(name: str, seed: int) -> None:
    given = scenario.load(name)
    given = given.model_copy(
        update={"pods": [pods.model_copy(update={"count": min(pods.count, 120)}) for pods in given.pods]}
    )
    lives: list[Live] = []
    shadows: list[Shadow] = []

    def live(of: Scenario, voice: Voice, _: int) -> Product:
        lives.append(Live(of, voice))
        return lives[0]

    def shadow(of: Scenario, voice: Voice, _: int) -> Product:
        shadows.append(Shadow(of, voice, lives[0].chosen))
        return shadows[0]

    first = await engine.run(given, "spazio", seed, {"spazio": live})
    second = await engine.run(given, "spazio", seed, {"spazio": shadow})
    assert list(first.ended) == list(second.ended)
    placed = [account for account in shadows[0].accounts if account.bound is not None]
    assert len(placed) == sum(pods.count for pods in given.pods)
    assert [account.node for account in placed] == [account.bound for account in placed]
    assert [account.breaks for account in placed] == [[]] * len(placed)
    refused = [account for account in shadows[0].accounts if account.bound is None]
    assert {account.outcome for account in refused} <= {"rejected"}
    assert len(refused) == lives[0].chosen.count(None)
