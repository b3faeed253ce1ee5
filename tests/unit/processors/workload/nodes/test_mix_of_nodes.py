"""What the nodes of a cluster make of their starts together: those that start pods come before those that do not."""

import pytest

from processors.workload.cluster import voting
from schemas.messages.estimate import ClassSum, Model
from schemas.settings import load

FEATURES = list(load({}, environ={}).model.features)


def model_of(voting_nodes: int, **classes: tuple[float, float, float]) -> Model:
    """Return a model of classes with so many votes, so much that comes, and the largest part of one node in that."""
    sums = {
        name: ClassSum(pods=9, cpu=9, memory=9, nodes=5, votes=votes, coming=coming, largest=largest)
        for name, (votes, coming, largest) in classes.items()
    }
    return Model(
        scope="global", at_us=0, features=FEATURES, moment=[0.0] * 15, cost=[0.0] * 5, pods=0, nodes=voting_nodes,
        voting=voting_nodes, classes=sums,
    )  # fmt: skip


def test_two_nodes_that_start_pods_are_not_outvoted_in_a_bound() -> None:
    """Of ten nodes two start jobs, whose votes were cut to a tenth since jobs are dear."""
    model = model_of(10, web=(8.0, 0.0, 0.0), job=(0.2, 2.0, 1.0))
    assert voting.mix_of(model)["job"] == pytest.approx(2.2 / 10, rel=0.05)
    assert voting.mix_of(model, voting.FEW_VOICES)["job"] > 2 / 3


def test_where_ten_nodes_start_pods_the_others_do_not_count() -> None:
    model = model_of(100, web=(90.0, 0.0, 0.0), job=(1.0, 10.0, 1.0))
    mix = voting.mix_of(model)
    assert mix["job"] == pytest.approx(1.0)
    assert 0 < mix["web"] < 1e-9, "nodes that run it do not say so by themselves"


@pytest.mark.parametrize("least", [voting.FEW_VOICES, 10.0])
def test_what_starting_nodes_say_of_classes_of_their_own_is_for_the_mean_pod(least: float) -> None:
    """Half of what 24 nodes start are services of one replica each, which are too many to be listed."""
    model = model_of(24, web=(10.0, 12.0, 0.5)).model_copy(update={"voted": 22.0, "voiced": 24.0})
    assert voting.mix_of(model, least) == {"web": pytest.approx(0.5, rel=0.03)}
    alone = model_of(24, web=(10.0, 12.0, 0.5)).model_copy(update={"voted": 11.0, "voiced": 13.0})
    assert voting.mix_of(alone, least) == {"web": 1.0}, "one node alone moves nothing"


@pytest.mark.parametrize("least", [voting.FEW_VOICES, 10.0])
def test_a_node_that_no_other_confirms_has_a_vote_and_no_more(least: float) -> None:
    model = model_of(10, web=(9.0, 0.0, 0.0), job=(1.0, 1.0, 1.0))
    assert voting.mix_of(model, least)["job"] == pytest.approx(0.1)


def test_the_loudest_node_at_most_doubles_what_another_says() -> None:
    honest = model_of(10, web=(9.5, 0.9, 0.9), job=(0.5, 0.1, 0.1))
    loud = model_of(10, web=(8.5, 0.9, 0.9), job=(1.5, 1.1, 1.0))
    assert voting.mix_of(honest)["job"] == pytest.approx(0.05)
    assert voting.mix_of(loud)["job"] == pytest.approx(0.15 + 0.02, abs=0.01)


def test_models_of_earlier_versions_count_votes_alone() -> None:
    model = model_of(4, web=(3.0, 0.0, 0.0), job=(1.0, 0.0, 0.0))
    assert model.classes is not None
    old = {name: item.model_copy(update={"coming": None, "largest": None}) for name, item in model.classes.items()}
    mix = voting.mix_of(model.model_copy(update={"classes": old}))
    assert mix == voting.mix_of(model) == {"web": 0.75, "job": 0.25}
