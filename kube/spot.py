"""Which nodes are spot capacity, which the provider may reclaim at short notice, by their labels."""

from collections.abc import Mapping

LABEL = "spazio.spot"
# Labels of providers and provisioners, with the value that marks spot capacity.
OF_PROVIDERS: Mapping[str, str] = {
    "karpenter.sh/capacity-type": "spot",
    "eks.amazonaws.com/capacityType": "spot",
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "kubernetes.azure.com/scalesetpriority": "spot",
}


def is_spot(labels: Mapping[str, str]) -> bool:
    """Tell whether a node's capacity may be reclaimed at short notice; the label `spazio.spot` wins over others.

    >>> is_spot({"cloud.google.com/gke-spot": "true"})
    True
    >>> is_spot({"spazio.spot": "false", "cloud.google.com/gke-spot": "true"})
    False
    """
    if LABEL in labels:
        return labels[LABEL].lower() == "true"
    return any(labels.get(key, "").lower() == value for key, value in OF_PROVIDERS.items())
