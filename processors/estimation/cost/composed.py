"""The default estimator: least squares for the mean pod, and room for the mix of classes once classes are known.

What a class of pods takes is learned in `processors.workload`, from what each pod uses. Until a node's classes are
known, and where pods have none, this is `least_squares`.
"""

from processors.estimation.cost.least_squares import LeastSquares


class Composed(LeastSquares):
    """The form `composed`; needs the policy of slowdown, which the reference variant does not have."""

    name = "composed"
    variants: tuple[str, ...] = ("default",)
    by_class = True
