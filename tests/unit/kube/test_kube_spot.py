"""Spot nodes are known by the labels of providers, and by ours, which wins."""

import pytest

from kube import spot


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, False),
        ({"spazio.spot": "true"}, True),
        ({"spazio.spot": "True"}, True),
        ({"karpenter.sh/capacity-type": "spot"}, True),
        ({"karpenter.sh/capacity-type": "on-demand"}, False),
        ({"eks.amazonaws.com/capacityType": "SPOT"}, True),
        ({"eks.amazonaws.com/capacityType": "ON_DEMAND"}, False),
        ({"cloud.google.com/gke-spot": "true"}, True),
        ({"cloud.google.com/gke-preemptible": "true"}, True),
        ({"kubernetes.azure.com/scalesetpriority": "spot"}, True),
        ({"cloud.google.com/gke-spot": "true", "spazio.spot": "false"}, False),
    ],
)
def test_spot_nodes_are_recognised_by_their_labels(labels: dict[str, str], expected: bool) -> None:
    assert spot.is_spot(labels) is expected
