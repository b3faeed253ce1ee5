"""A pod of a followed cluster: what it would use if it were real.

Nobody can know what a pod uses that does not exist. Its annotations may say it (`spazio.usage-cpu`,
`spazio.usage-memory`, quantities like 250m and 128Mi); else its requests count; else what kube-scheduler takes for a
container without any. CPU is demanded by requests that come at random, whatever their answers take. A pod with
`spazio.usage-threads` has so many threads that never sleep instead; CPU it then demands only where an annotation says
so.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kube import quantity
from producers.simulated import noise
from schemas.messages.facts import PodFacts

USAGE = {"cpu": "spazio.usage-cpu", "memory": "spazio.usage-memory"}
THREADS = "spazio.usage-threads"
_MOST_THREADS = 1024.0
_STAND_IN = {"cpu": 0.1, "memory": 200.0 * (1 << 20)}
NEVER = 1 << 62


@dataclass(slots=True)
class Guest:
    """One pod that runs, or has run until lately.

    Attributes:
        facts: What is known of it.
        key: Tells its noise apart.
        cores: CPU that its requests demand.
        threads: Threads that never sleep.
        memory: Bytes that it holds.
        start_us: When it began to run, as far as anybody noticed.
        end_us: When it ended.
    """

    facts: PodFacts
    key: int
    cores: float
    threads: int
    memory: float
    start_us: int
    end_us: int = NEVER


def of(facts: PodFacts, seed: int, doubt: Callable[[str], None]) -> Guest:
    """Return a pod that begins to run.

    Args:
        facts: What is known of it.
        seed: Of the simulation.
        doubt: Receives an annotation that cannot be used; it then counts as absent.
    """
    threads = round(min(_annotated(facts, THREADS, doubt) or 0.0, _MOST_THREADS))
    return Guest(
        facts,
        noise.key(seed, facts.pod),
        0.0 if threads and USAGE["cpu"] not in facts.annotations else _amount(facts, "cpu", doubt),
        threads,
        _amount(facts, "memory", doubt),
        start_us=facts.at_us,
    )


def _amount(facts: PodFacts, resource: str, doubt: Callable[[str], None]) -> float:
    annotated = _annotated(facts, USAGE[resource], doubt)
    return (facts.requests.get(resource) or _STAND_IN[resource]) if annotated is None else annotated


def _annotated(facts: PodFacts, annotation: str, doubt: Callable[[str], None]) -> float | None:
    """Return the quantity that an annotation says; None: it says none."""
    text = facts.annotations.get(annotation)
    if text is None:
        return None
    try:
        return _read(text)
    except ValueError as error:
        doubt(f"annotation {annotation}: {error}")
    return None


def _read(text: str) -> float:
    amount = min(quantity.parse(text), quantity.parse("1E"))
    if amount < 0:
        raise ValueError(f"{text!r} is below 0")
    return float(amount)
