"""Error and convergence time of every form of the estimator, on scripted nodes.

    python -m benchmarks.estimators [--out docs/estimators]

A node of 4 CPUs runs pods that use 0.25 cores each in addition to 0.2 of the system, with noise; so the number of pods
that fit is known at every second. The Kalman forms use the reference model's signal, by which a node is full at a blend
of 1; the others use the policy's slowdown. Each form is compared with its own truth. Error is the root mean square in
pods after a minute. The convergence time ends when the error after a change stays below one pod.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from processors.estimation import slowdown
from processors.partition.partition import Partition
from schemas import codec, metric
from schemas.messages.estimate import Availability
from schemas.messages.telemetry import PodUsageBlock, SampleBlock
from schemas.settings import Settings, load
from schemas.subject import Names

CPUS, MEMORY = 4, 16 << 30
REST, COST = 0.2, 0.25
SECONDS = 300
FORMS: Mapping[str, dict[str, str]] = {
    "composed": {"estimate_form": "composed"},
    "least_squares": {"estimate_form": "least_squares"},
    "kalman_joint": {"estimate_form": "kalman_joint", "model_variant": "carico"},
    "kalman_delta": {"estimate_form": "kalman_delta", "model_variant": "carico"},
    "kalman_dual": {"estimate_form": "kalman_dual", "model_variant": "carico"},
}
_START = 1_700_000_000
_WARM = 60
_CONVERGED = 1.0


class Scene(NamedTuple):
    """Script of a node: number of pods, and cores of one pod, by second."""

    pods: Callable[[int], int]
    cost: Callable[[int], float] = lambda _second: COST
    changed: int = 0
    replaced: bool = False


SCENES: Mapping[str, Scene] = {
    "pods come and go": Scene(lambda second: 1 + second // 20 % 5),
    "constant pods": Scene(lambda _second: 4),
    "cost doubles": Scene(lambda second: 2 + second // 20 % 3, lambda second: COST * (1 + (second >= 150)), 150),
    "saturation": Scene(lambda second: 24 if 100 <= second < 160 else 4, changed=160),
    "churn without end": Scene(lambda _second: 6, replaced=True),
}


def messages(scene: Scene, seed: int) -> Iterator[tuple[int, list[tuple[str, bytes]]]]:
    """Yield the messages of the node's agent, second by second."""
    random, names = np.random.default_rng(seed), Names()
    born: dict[int, int] = {}
    for second in range(SECONDS):
        count = scene.pods(second)
        first = second if scene.replaced else 0
        own = range(first, first + count)
        born = {number: born.get(number, second) for number in own}
        wanted = np.maximum(scene.cost(second) * (1 + random.normal(0, 0.1, count)), 0.0)
        rest = max(REST + random.normal(0, 0.02), 0.0)
        demand = rest + float(wanted.sum())
        ages = {f"p{number}": second - born[number] for number in own}
        block, usage = _block(second, demand, count), _usage(second, wanted, rest, min(1.0, CPUS / demand), ages)
        yield (
            second,
            [
                (names.part(0, kind, "n"), codec.encode(message))
                for kind, message in (("samples", block), ("pods", usage))
            ],
        )


def _block(second: int, demand: float, pods: int) -> SampleBlock:
    """Return the node's samples of one second with a demand in cores."""
    values = np.zeros((10, len(metric.NAMES)))
    values[:, metric.NAMES.index("cpu_util")] = min(demand / CPUS, 1.0)
    values[:, metric.NAMES.index("cpu_pressure")] = np.clip(demand / CPUS - 1, 0, 1)
    values[:, metric.NAMES.index("procs_running")] = 1 + demand
    values[:, metric.NAMES.index("memory_util")] = values[:, metric.NAMES.index("memory_used")] = 0.1
    values[:, metric.NAMES.index("pods")] = pods
    return SampleBlock(
        node="n",
        boot="b",
        seq=1000 + second,
        at_us=(_START + second) * 1_000_000,
        step_us=100_000,
        cpus=CPUS,
        memory_bytes=MEMORY,
        metrics=list(metric.NAMES),
        values=[float(value) for value in np.round(values, 4).ravel()],
    )


def _usage(second: int, wanted: NDArray[np.float64], rest: float, served: float, ages: dict[str, int]) -> PodUsageBlock:
    """Return what each pod used in one second: the served share of the cores that it wanted."""
    none: list[Any] = [None] * len(ages)
    return PodUsageBlock(
        node="n",
        boot="b",
        seq=1001 + second,
        at_us=(_START + second + 1) * 1_000_000,
        span_us=1_000_000,
        system_cpu_cores=rest * served,
        pods=list(ages),
        namespaces=none,
        names=none,
        workloads=["w"] * len(ages),
        containers=[1] * len(ages),
        cpu_cores=(wanted * served).tolist(),
        memory_bytes=[1e8] * len(ages),
        cpu_pressure=[max(0.0, 1 - served)] * len(ages),
        memory_pressure=none,
        io_pressure=none,
        throttled=none,
        ages=list(ages.values()),
    )


def truth(scene: Scene, second: int, settings: Settings) -> float:
    """Return how many more pods fit by the form's own definition of a full node."""
    cost, pods = scene.cost(second), scene.pods(second)
    if settings.model.variant == "carico":
        return max(0.0, (2.0 * CPUS - REST) / cost - pods)
    counted = cost * float(slowdown.weight(np.array([cost]), slowdown.queueing(2.0, np.array([float(CPUS)])))[0])
    return max(0.0, (slowdown.share(2.0, CPUS) * CPUS - REST) / counted - pods)


def run(form: str, scene: Scene, seed: int = 1) -> NDArray[np.float64]:
    """Return (seconds, 3): available, lower, truth; NaN before the first row."""
    settings = load({**FORMS[form], "model_global_weight": "0", "estimate_report_seconds": "0.5"}, environ={})
    partition, rows = Partition(settings, 0), np.full((SECONDS, 3), np.nan)
    newest: Availability | None = None
    for second, sent in messages(scene, seed):
        for output in partition.fold(sent)[0]:
            if isinstance(output.message, Availability):
                newest = output.message
        if newest is not None:
            rows[second] = newest.available, newest.lower, truth(scene, second, settings)
    return rows


def figures(rows: NDArray[np.float64], scene: Scene) -> dict[str, float]:
    """Return error, share of valid lower bounds, and convergence seconds after the scene's change (or its start)."""
    error = rows[:, 0] - rows[:, 2]
    late = np.flatnonzero(np.abs(error[scene.changed :]) > _CONVERGED)
    return {
        "rmse_pods": round(float(np.sqrt(np.nanmean(error[_WARM:] ** 2))), 2),
        "lower_holds": round(float(np.mean(rows[_WARM:, 1] <= rows[_WARM:, 2] + 1e-9)), 3),
        "converged_seconds": float(late[-1] + 1) if late.size else 0.0,
    }


def text(results: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Return the table."""
    lines = ["| scene | " + " | ".join(FORMS) + " |", "|---" * (len(FORMS) + 1) + "|"]
    for scene, forms in results.items():
        cells = [
            f"{each['rmse_pods']:.2f} ({each['lower_holds']:.0%}, {each['converged_seconds']:.0f} s)"
            for each in (forms[form] for form in FORMS)
        ]
        lines.append(f"| {scene} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(runs: Mapping[str, Mapping[str, NDArray[np.float64]]], path: Path) -> None:
    """Draw each form's availability and its truth."""
    figure = Figure(figsize=(3.4 * len(FORMS), 2.2 * len(runs)), layout="constrained")
    axes = figure.subplots(len(runs), len(FORMS), squeeze=False)
    for row, (scene, forms) in zip(axes, runs.items(), strict=True):
        for panel, form in zip(row, FORMS, strict=True):
            available, _, true = forms[form].T
            panel.plot(available, color="#1f4e9c", lw=1.2, label="available")
            panel.plot(true, color="#d62728", lw=1, ls="--", label="truth")
            panel.set_ylim(0, max(5.0, float(np.nanmax(true)) * 2))
            panel.set_title(f"{form}: {scene}", fontsize=8)
            panel.grid(visible=True, alpha=0.3)
    axes[0][0].legend(fontsize=8)
    figure.supxlabel("seconds")
    figure.supylabel("more pods that fit")
    figure.savefig(path, dpi=80)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run every form on every scene."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for estimators.png; none: no picture")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON instead of the table")
    given = parser.parse_args(arguments)
    runs = {name: {form: run(form, scene) for form in FORMS} for name, scene in SCENES.items()}
    results = {
        name: {form: figures(rows, SCENES[name]) for form, rows in forms.items()} for name, forms in runs.items()
    }
    print(json.dumps(results) if given.json else text(results))
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        draw(runs, given.out / "estimators.png")


if __name__ == "__main__":
    main()
