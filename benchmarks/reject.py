"""Cost of PRONTO's reject signal for a node and block, and its detections on simulated nodes.

Cost is the fastest of several rounds, in microseconds for a node's block of ten samples, of the whole signal and of its
steps: the directions by either solver, and the spikes. For detection, usage varies around a level and rises in some
metrics for five blocks a minute. The result is the share of rises rejected in their first block, the share of all
other blocks rejected, and the share of rises that an equal number of random rejections would hit.

`--forms` compares the local form with the federated one on the same recordings: of nodes that each have a pattern of
their own, of nodes that have one in common, and of nodes that have it in common while every other one is nearly idle.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from processors.model import subspace
from processors.reject import federated, fpca, signal, spike
from processors.reject.federated import Shared
from schemas.messages.prediction import Subspace

Array = NDArray[np.float64]

SAMPLES = 10
_ROUNDS = 5
_PERIOD = 60
_LENGTH = 5
_PERSISTENCE = 0.8
_MERGE = 5  # blocks, as `reject.merge_seconds`
_IDLE = 0.05
_SEEDS = 5
_SHARES = ("first_block", "other_blocks", "by_chance")


def usage(nodes: int, metrics: int, blocks: int, seed: int = 0, pattern_of: str = "own") -> Iterator[Array]:
    """Yield blocks (nodes, samples, metrics) of correlated usage; a node has its own level and pattern.

    Where `pattern_of` is `common` all nodes have one pattern; where it is `idle` every other one has a twentieth of it.
    """
    random = np.random.default_rng(seed)
    pattern = random.standard_normal((nodes, metrics, metrics)) * 0.03 * 0.9 ** np.arange(metrics)
    if pattern_of != "own":
        pattern[:] = pattern[0]
    if pattern_of == "idle":
        pattern[::2] *= _IDLE
    level = random.uniform(0.1, 0.6, (nodes, 1, metrics))
    cause = random.standard_normal((nodes, 1, metrics))
    for _ in range(blocks):
        fresh = random.standard_normal(cause.shape)
        cause = _PERSISTENCE * cause + (1 - _PERSISTENCE**2) ** 0.5 * fresh
        noise = 0.01 * random.standard_normal((nodes, SAMPLES, metrics))
        yield level + np.matmul(cause, pattern.transpose(0, 2, 1)) + noise


def fastest(work: Callable[[], Any], times: int) -> float:
    """Return the seconds of a call in the fastest of several rounds."""
    rounds = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        for _ in range(times):
            work()
        rounds.append((time.perf_counter() - began) / times)
    return min(rounds)


def cost(nodes: int, metrics: int) -> dict[str, Any]:
    """Measure the signal and its steps from a settled state."""
    params = signal.Params()
    state = signal.init(nodes, metrics, params=params)
    block = np.empty(0)
    for block in usage(nodes, metrics, params.lag + 10):
        state, _ = signal.update(state, block, params=params)
    projections = fpca.project(state.directions, block[:, 0])
    shaken = {"threshold": params.threshold, "influence": params.influence, "floor": params.floor}
    steps: dict[str, Callable[[], Any]] = {
        "signal": lambda: signal.update(state, block, params=params),
        "fpca_eigh": lambda: fpca.update(state.directions, block, gamma=params.gamma, solver="eigh"),
        "fpca_svd": lambda: fpca.update(state.directions, block, gamma=params.gamma, solver="svd"),
        "spike": lambda: spike.update(state.windows, projections, **shaken),
    }
    times = max(2, 2000 // nodes)
    took = {f"{name}_us": round(fastest(work, times) / nodes * 1e6, 1) for name, work in steps.items()}
    return {"nodes": nodes, "metrics": metrics} | took


def detections(
    metrics: int,
    rising: int,
    height: float,
    nodes: int = 50,
    blocks: int = 500,
    *,
    pattern_of: str = "own",
    seed: int = 0,
    params: signal.Params | None = None,
) -> dict[str, Any]:
    """Return the share of rejections when `rising` metrics rise by `height`, and that of a random rejector."""
    params = params or signal.Params()
    state, shared = signal.init(nodes, metrics, params=params), None
    first, calm, all_blocks = [], [], []
    for number, block in enumerate(usage(nodes, metrics, blocks, seed, pattern_of)):
        since = number % _PERIOD
        if number >= 2 * _PERIOD and since < _LENGTH:
            block[:, :, :rising] += height
        if params.subspace == "global" and number and not number % _MERGE:
            state, shared = adopted(state, shared, params)
        state, output = signal.update(state, block, params=params, shared=shared)
        if number < 2 * _PERIOD:
            continue
        all_blocks.append(output.reject.mean())
        if since == 0:
            first.append(output.reject.mean())
        elif since >= _LENGTH:
            calm.append(output.reject.mean())
    shares = {"first_block": np.mean(first), "other_blocks": np.mean(calm), "by_chance": np.mean(all_blocks)}
    return {"metrics": metrics, "rising": rising, "height": height} | {
        name: round(float(share), 4) for name, share in shares.items()
    }


def adopted(state: signal.State, before: Shared | None, params: signal.Params) -> tuple[signal.State, Shared]:
    """Merge the directions of all nodes and put them in force, by the message that the bus would carry."""
    merged: subspace.State = federated.merged(state.directions)
    nodes, metrics = state.directions.mean.shape
    names = [f"m{number}" for number in range(metrics)]
    message = Subspace(scope="global", at_us=0, metrics=names, nodes=nodes, **federated.numbers(merged))
    return signal.adopt(state, before, message, params=params)


def forms() -> Iterator[dict[str, Any]]:
    """Yield what each form finds of the same recordings, means of five seeds."""
    for pattern_of in ("own", "common", "idle"):
        for rising, height in ((1, 0.4), (2, 0.4), (1, 0.15), (2, 0.15)):
            for form in (signal.Params(), signal.Params(subspace="global")):
                runs = [
                    detections(6, rising, height, pattern_of=pattern_of, seed=seed, params=form)
                    for seed in range(_SEEDS)
                ]
                means = {name: round(float(np.mean([run[name] for run in runs])), 4) for name in _SHARES}
                yield {"pattern": pattern_of, "form": form.subspace, "rising": rising, "height": height} | means


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--forms", action="store_true", help="compare the local form with the federated one only")
    if parser.parse_args().forms:
        for row in forms():
            print(json.dumps(row), flush=True)
        raise SystemExit
    for many in (1, 100, 1000):
        for wide in (6, 15):
            print(json.dumps(cost(many, wide)), flush=True)
    for wide in (2, 6, 10, 15):
        for moved in (1, 2):
            print(json.dumps(detections(wide, moved, 0.4)), flush=True)
