"""What a partition takes from the global model of classes: their costs and kinds, what is likely to come, and votes.

Arrays by class are addressed with labels, the numbers of the classes' names.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from processors.rows.name_index import NameIndex
from processors.workload import classes, kind
from processors.workload.capacity.expected import Next
from processors.workload.capacity.nodes import Cluster
from processors.workload.cluster import attested, voting
from schemas.messages.estimate import Model

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

_UNKNOWN = Cluster(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0), np.zeros(0), np.zeros((0, 2)), np.zeros(0))


class ClusterView:
    """The cluster by the global model in force, and by what is remembered of those before it.

    Attributes:
        classes: Classes that it knows.
    """

    def __init__(self, index: NameIndex) -> None:
        """Know nothing; `index` numbers the names of classes."""
        self.classes = _UNKNOWN
        self._index = index
        self._attested: attested.Attested = {}
        self._evident = set[str]()
        self._priors = np.full((1, 2), np.nan)
        self._mix, self._starting = dict[str, float](), dict[str, float]()  # of the cluster; by fewer of its nodes
        self._mix_cost, self._weight_of_mixed = (np.full(2, np.nan), 1.0), 1.0

    def adopt(self, model: Model) -> None:
        """Take over a global model."""
        sums = model.classes or {}
        self._mix, self._starting = voting.mix_of(model), voting.mix_of(model, voting.FEW_VOICES)
        evident = attested.evident(sums, self._evident)
        self._attested, self._evident = attested.remember(self._attested, model, evident), set(evident)
        self.classes = voting.cluster_of(evident, self._attested, self._index.number)
        self._mix_cost, self._weight_of_mixed = voting.cost_of_mix(self._mix, sums), voting.weight_of_mixed(model)
        self._priors = np.full((1, 2), np.nan)

    @property
    def soaking(self) -> Labels:
        """Labels of the classes whose pods never sleep."""
        return self.classes.label[self.classes.soaking > kind.SOAKING]

    def share_soaking(self, label: int) -> float:
        """Return how soaking a class is, 0..1; 0: it is not known."""
        share = self.classes.soaking[self.classes.label == label]
        return float(share[0]) if share.size else 0.0

    def cost(self, label: Labels) -> Array:
        """Return what a pod of classes takes (..., resources); NaN: not known."""
        if len(self._priors) <= len(self._index):
            self._priors = np.full((len(self._index) + 1, 2), np.nan)  # the last row is that of EMPTY
            self._priors[self.classes.label] = self.classes.cost
        return np.asarray(self._priors[label])

    @property
    def is_witnessed(self) -> bool:
        """Whether three nodes attest any class."""
        return bool((self.classes.fair > 0).any())

    def witnessed(self, label: Labels) -> Array:
        """Return `cost` of classes that three nodes attest; of all, if they attest none."""
        by_several = self.fair(label)[..., None] > 0
        return np.where(by_several | (not self.is_witnessed), self.cost(label), np.nan)

    def fair(self, label: Labels) -> Array:
        """Return the mean pods (...) that nodes have evidence of, by class; NaN: too few have any."""
        fair = np.full(len(self._index) + 1, np.nan)
        fair[self.classes.label] = self.classes.fair
        return np.asarray(fair[label])

    def mixed(self, label: Labels) -> NDArray[np.bool_]:
        """Tell which classes (...) the mix that comes next has."""
        return np.asarray(self._by_label(self._mix)[label] > 0)

    def weight(self, label: Labels) -> Array:
        """Return by how much classes (...) count in what a pod takes that is of no class of the mix, 0..1."""
        return np.where(self.mixed(label), self._weight_of_mixed, 1.0)

    def cost_of_mix(self, reference: Array) -> Array:
        """Return what a pod of the mix takes (nodes, resources), where one of no class takes so much."""
        of_classes, rest = self._mix_cost
        return of_classes + rest * reference

    def coming(self, state: classes.State) -> Next:
        """Return what comes next by the starts of the cluster, not of the partition, once there are any."""
        likely = by_few = self._likely(state, self._mix)
        also: list[Array] = []
        if self._starting != self._mix:
            by_few = self._likely(state, self._starting)
            also.append(by_few)
        returned = dict.fromkeys((name for name, each in self._attested.items() if each.returned), 1.0)
        back = self._by_label(returned)[state.label] > 0
        again = voting.returning(state.starts, state.pods, back & (state.pods == 0), by_few)
        if again is not None:
            also.append(again)
        return Next(likely, tuple(also))

    def _likely(self, state: classes.State, mixed: Mapping[str, float]) -> Array:
        expected = self._by_label(mixed)
        return voting.likely(state.starts, state.pods, expected[state.label], expected[self.classes.label])

    def _by_label(self, amounts: Mapping[str, float]) -> Array:
        return voting.by_label(amounts, self._index.find, len(self._index))

    def renumber(self, moved: Labels) -> None:
        """Take the new label (labels,) of each old one."""
        self.classes = self.classes._replace(label=moved[self.classes.label])
        self._priors = np.full((1, 2), np.nan)

    def dump(self) -> dict[str, Any]:
        """Return what the next global model does not say again, as JSON types."""
        return {
            "cluster": self.classes.label.tolist(),
            "attested": attested.dump(self._attested),
            "evident": sorted(self._evident),
        }

    def load(self, stored: Mapping[str, Any]) -> None:
        """Take over what `dump` returned; earlier versions remembered nothing.

        Raises:
            ValueError: It is none.
        """
        self._attested, self._evident = attested.load(stored.get("attested", {})), set(stored.get("evident", ()))
        self.classes = _UNKNOWN._replace(label=np.array(stored["cluster"], dtype=np.int64))
