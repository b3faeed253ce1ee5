"""A pod of a followed cluster: what it would use if it were real.

Nobody can know what a pod uses that does not exist. Its annotations may say it (`spazio.usage-cpu`,
`spazio.usage-memory`, quantities like 250m and 128Mi); else its requests count; else what kube-scheduler takes for a
container without any.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kube import quantity
from producers.simulated import noise
from schemas.messages.facts import PodFacts

USAGE = {"cpu": "spazio.usage-cpu", "memory": "spazio.usage-memory"}
_STAND_IN = {"cpu": 0.1, "memory": 200.0 * (1 << 20)}
NEVER = 1 << 62


@dataclass(slots=True)
class Guest:
    """One pod that runs, or has run until lately.

    Attributes:
        facts: What is known of it.
        key: Tells its noise apart.
        cores: CPU that it wants.
        memory: Bytes that it holds.
        start_us: When it began to run, as far as anybody noticed.
        end_us: When it ended.
    """

    facts: PodFacts
    key: int
    cores: float
    memory: float
    start_us: int
    end_us: int = NEVER


def of(facts: PodFacts, seed: int, doubt: Callable[[str], None]) -> Guest:
    """Return a pod that begins to run.

    Args:
        facts: What is known of it.
        seed: Of the simulation.
        doubt: Told of an annotation that cannot be used; it then counts as absent.
    """
    key, (cores, memory) = noise.key(seed, facts.pod), (_amount(facts, resource, doubt) for resource in USAGE)
    return Guest(facts, key, cores, memory, start_us=facts.at_us)


def _amount(facts: PodFacts, resource: str, doubt: Callable[[str], None]) -> float:
    text = facts.annotations.get(USAGE[resource])
    if text is not None:
        try:
            return _read(text)
        except ValueError as error:
            doubt(f"annotation {USAGE[resource]}: {error}")
    return facts.requests.get(resource) or _STAND_IN[resource]


def _read(text: str) -> float:
    amount = min(quantity.parse(text), quantity.parse("1E"))
    if amount < 0:
        raise ValueError(f"{text!r} is below 0")
    return float(amount)
