"""How often nodes with room for a pod then are beyond the policy: what the bounds state, and what is seen.

Every scenario of `spazio simulate`, with seeds that no other figure uses: spazio places the pods, or it decides in
shadow mode beside kube-scheduler. The extender settles its promises by telemetry of nodes; beside it stand the
node-seconds that the simulation itself has beyond the policy.
"""

import argparse
import asyncio
from collections.abc import Sequence
from functools import partial

from schemas.messages.facts import PodFacts
from schemas.sections.placement import Extender
from sinks.extender.trust.promises import upper
from spazio.simulation import engine, scenario
from spazio.simulation.scenario import Scenario
from spazio.simulation.schedulers.by_requests import ByRequests
from spazio.simulation.schedulers.product import Product
from spazio.simulation.telemetry import Voice

_FIRST_SEED = 1000


class Shadowed(Product):
    """kube-scheduler, and spazio in shadow mode."""

    def __init__(self, given: Scenario, voice: Voice, seed: int) -> None:
        """Prepare both."""
        super().__init__(given, voice, "default", "shadow")
        self._scheduler = ByRequests(voice, seed, "kube")

    async def place(self, pod: int, nodes: Sequence[str], now: float) -> int | None:
        """Return the node that kube-scheduler chooses, once spazio has decided as if."""
        await super().place(pod, nodes, now)
        return await self._scheduler.place(pod, nodes, now)

    def hear(self, facts: PodFacts) -> None:
        """Take what the watch says of a pod."""
        super().hear(facts)
        self._scheduler.hear(facts)

    def leave(self, node: str) -> None:
        """Forget a node."""
        super().leave(node)
        self._scheduler.leave(node)


async def measure(given: Scenario, seed: int, *, shadow: bool) -> tuple[int, ...]:
    """Return promises that settled, broken and loose ones, and node-seconds beyond the policy and in all."""
    made: list[Product] = []

    def make(of: Scenario, voice: Voice, number: int) -> Product:
        made.append(Shadowed(of, voice, number) if shadow else Product(of, voice, "default"))
        return made[-1]

    kept = given.model_copy(update={"keep_requests": given.keep_requests or shadow})
    run = await engine.run(kept, "spazio", seed, {"spazio": make})
    settled = made[0].promises.published()
    return (
        sum(each.settled for each in settled),
        sum(each.broken for each in settled),
        sum(each.loose for each in settled),
        run.over_seconds,
        run.busy_seconds,
    )


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scenarios", nargs="*", default=scenario.packaged())
    arguments = parser.parse_args()
    print(f"stated: at most {Extender().promote_risk:.0%} of promises are broken")
    print(
        "| mode | scenario | promises | broken | share, and upper end at 95 % | with much room left "
        "| node-seconds beyond the policy |"
    )
    print("|---|---|---|---|---|---|---|")
    for mode in ("argmax", "shadow"):
        total = [0] * 5
        for name in [*arguments.scenarios, ""]:
            figures = total
            if name:
                once = partial(measure, scenario.load(name), shadow=mode == "shadow")
                runs = [asyncio.run(once(_FIRST_SEED + seed)) for seed in range(arguments.seeds)]
                figures = [sum(column) for column in zip(*runs, strict=True)]
                total = [before + more for before, more in zip(total, figures, strict=True)]
            settled, broken, loose, over, busy = figures
            share = f"{broken / settled:.1%}, {upper(broken, settled):.1%}" if settled else "-"
            beyond = f"{over} of {busy} ({over / max(busy, 1):.1%})"
            print(f"| {mode} | {name or 'all'} | {settled} | {broken} | {share} | {loose} | {beyond} |", flush=True)


if __name__ == "__main__":
    main()
