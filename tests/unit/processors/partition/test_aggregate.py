"""The aggregate as a fold: one model for each event second, whatever comes, also after a restore."""

import json
import random
import tomllib
from pathlib import Path

import pytest

from processors.partition.aggregate import Aggregate
from schemas import codec
from schemas.messages.base import RELEASE
from schemas.messages.estimate import ClassSum, Model

START = 1_700_000_000


def sums(partition: int, second: int, *, nodes: int = 1, moment: float = 1.0) -> tuple[str, bytes]:
    model = Model(
        scope="partition",
        partition=partition,
        at_us=(START + second) * 1_000_000,
        features=["cpu", "memory"],
        moment=[moment, 0.0, moment],
        nodes=nodes,
        pods=1.5,
        cost=[0.1, 0.2],
    )
    return f"spazio.model.partition.{partition}", codec.encode(model)


def folded(aggregate: Aggregate, messages: list[tuple[str, bytes]]) -> list[bytes]:
    made = [aggregate.fold(subject, payload) for subject, payload in messages]
    return [codec.encode(model) for model in made if model is not None]


def test_a_model_adds_the_last_sums_of_each_partition_when_a_second_ends() -> None:
    aggregate = Aggregate(3, silent_seconds=30)
    messages = [sums(0, 0), sums(1, 0, moment=2), sums(0, 1, moment=5), sums(1, 1), sums(0, 2)]
    first, second = (codec.decode(Model, payload) for payload in folded(aggregate, messages))
    assert (first.at_us, first.moment) == (START * 1_000_000, [3, 0, 3])
    assert (second.at_us, second.moment, second.nodes) == ((START + 1) * 1_000_000, [6, 0, 6], 2)


def test_of_all_partitions_only_the_furthest_node_on_each_side_is_brought_back() -> None:
    """Also after a restore, and beside a partition of the version before, which does not say how far its nodes are."""

    def far(partition: int, above: float, below: float) -> tuple[str, bytes]:
        model = codec.decode(Model, sums(partition, 0)[1])
        web = ClassSum(pods=3.0, cpu=3.0, memory=30.0, nodes=2, above=[above, 0.0], below=[0.0, 10 * below])
        beyond = {"above": [above / 10, 0.0], "below": [0.0, below / 10], "classes": {"web": web}}
        return f"spazio.model.partition.{partition}", codec.encode(model.model_copy(update=beyond))

    aggregate = Aggregate(3, silent_seconds=30)
    folded(aggregate, [far(0, 0.5, 0.2), far(1, 0.8, 0.1), sums(2, 0)])
    restored = Aggregate(3, silent_seconds=30)
    restored.restore(aggregate.snapshot())
    (merged,) = (codec.decode(Model, payload) for payload in folded(restored, [sums(0, 1)]))
    assert merged.cost == pytest.approx([0.3 - 0.08, 0.6 + 0.02])
    assert (merged.classes or {})["web"] == ClassSum(pods=6.0, cpu=6.0 - 0.8, memory=60.0 + 2.0, nodes=4)
    assert merged.above is merged.below is None


def test_a_silent_partition_is_left_out() -> None:
    aggregate = Aggregate(2, silent_seconds=3)
    folded(aggregate, [sums(1, 0)])
    models = [codec.decode(Model, payload) for payload in folded(aggregate, [sums(0, second) for second in range(8)])]
    assert [model.nodes for model in models] == [2, 2, 2, 2, 1, 1, 1]


@pytest.mark.parametrize("ahead", [29, 31, 45, 59])
def test_a_partition_whose_event_second_is_ahead_leaves_no_other_out(ahead: int) -> None:
    """One of its nodes has a clock that is ahead; also where the aggregate is restored meanwhile."""
    aggregate, models = Aggregate(3, silent_seconds=30), []
    for second in range(40):
        made = folded(aggregate, [sums(0, second + ahead), sums(1, second), sums(2, second)])
        models += [codec.decode(Model, payload) for payload in made]
        body = aggregate.snapshot()
        aggregate = Aggregate(3, silent_seconds=30)
        aggregate.restore(body)
    assert [model.nodes for model in models[2:]] == [3] * (len(models) - 2)
    assert len(models) >= 38


def test_a_state_of_an_older_program_goes_on() -> None:
    messages = [sums(partition, second) for second in range(6) for partition in range(3)]
    before, after = Aggregate(3, silent_seconds=30), Aggregate(3, silent_seconds=30)
    folded(before, messages[:8])
    stored = json.loads(before.snapshot())
    del stored["heard"]
    after.restore(json.dumps(stored | {"watermark": stored["watermark"][:7]}).encode())
    assert folded(after, messages[8:]) == folded(before, messages[8:])


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_a_restored_aggregate_makes_the_same_models(cut: int) -> None:
    chance = random.Random(cut)
    messages = [sums(chance.randrange(4), second // 4, moment=chance.random()) for second in range(60)]
    whole = folded(Aggregate(4, silent_seconds=30), messages)
    before, after = Aggregate(4, silent_seconds=30), Aggregate(4, silent_seconds=30)
    made = folded(before, messages[:cut])
    after.restore(before.snapshot())
    assert made + folded(after, messages[cut:]) == whole
    assert len(whole) > 10


@pytest.mark.parametrize(
    "message",
    [
        ("spazio.model.partition.1", sums(0, 0)[1]),
        ("spazio.model.partition.7", sums(7, 0)[1]),
        ("spazio.model.partition.0", b"nonsense"),
        ("spazio.model.partition.0", sums(0, 0)[1].replace(b'"partition"', b'"global"', 1)),
    ],
    ids=["another's", "beyond the last", "no JSON", "global"],
)
def test_what_are_no_sums_of_their_partition_is_refused(message: tuple[str, bytes]) -> None:
    with pytest.raises(codec.Refused):
        Aggregate(4, silent_seconds=30).fold(*message)


def test_sums_that_are_too_much_together_are_refused_and_the_next_second_goes_on() -> None:
    aggregate = Aggregate(2, silent_seconds=30)
    folded(aggregate, [sums(0, 0, moment=1e60), sums(1, 0, moment=1e60)])
    with pytest.raises(codec.Refused, match="sums of second"):
        aggregate.fold(*sums(0, 1))
    assert len(folded(aggregate, [sums(1, 1), sums(0, 2)])) == 1


@pytest.mark.parametrize("body", [b"", b"[]", b'{"format":9}', b'{"format":1,"watermark":[0,0],"sums":[{}]}'])
def test_a_damaged_state_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Aggregate(2, silent_seconds=30).restore(body)


def test_the_release_is_that_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())
    assert project["project"]["version"] == RELEASE
