"""Compare spazio with its peers, in CPU time of one process and one thread: `make peers`.

`fold`: the same messages through `Partition.fold`, and through bytewax in three ways: our functions with a node's state
per key, a fold written for one node with its state per key, and a whole partition as one key. In blocks per CPU second.
`model` and `estimator`: one update of every node at once, and a loop over one scikit-learn or filterpy object a node.

The sides take turns, and the best turn of each counts. The benchmark compares the results, so that each side does the
same work. Exits with status 1 if a ratio is below its minimum in `PROMISED`.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks import fold
from benchmarks.peers import bytewax, loop
from benchmarks.peers.bytewax import Chained, Messages
from benchmarks.peers.written.node import Written
from processors import decode
from processors.estimation import chain
from processors.estimation.chain import Batch, Params
from processors.estimation.global_model import GlobalModel
from processors.estimation.variant import choose
from processors.partition.partition import Partition
from schemas import codec, metric
from schemas import settings as all_settings
from schemas.messages.estimate import Availability
from schemas.settings import Settings
from schemas.subject import Names

NODE, WRITTEN, PARTITION = "bytewax, our functions", "bytewax, written for one node", "bytewax, our partition"
PROMISED = {("fold", NODE): 10.0, ("model", "scikit-learn"): 50.0, ("estimator", "filterpy"): 50.0}
_PEERS = ("bytewax", "scikit-learn", "filterpy", "numpy", "pydantic")
_START = 1_700_000_000
_EXACT, _SAME = 1e-9, 1e-12


def messages(nodes: int, seconds: int, noise: float) -> list[tuple[str, bytes]]:
    """Return every node's blocks as a partition reads them, second by second."""
    subjects = [Names("spazio").part(0, "samples", f"node-{index}") for index in range(nodes)]
    columns = json.dumps(metric.NAMES, separators=(",", ":"))
    return [
        (
            subject,
            (
                f'{{"v":1,"node":"node-{index}","boot":"5f1c2a6e-0d43-4a5e-9b57-1f7c3d2e8a90","seq":{1000 + second},'
                f'"at_us":{(_START + second) * 1_000_000 + index % 1000},"step_us":100000,"cpus":16,'
                f'"memory_bytes":68719476736,"metrics":{columns},"values":{values[index % len(values)]}}}'
            ).encode(),
        )
        for second, values in enumerate(fold.courses(seconds, noise, metric.NAMES))
        for index, subject in enumerate(subjects)
    ]


def partition(settings: Settings) -> Callable[[Messages], list[bytes]]:
    """Return a partition's fold of messages into its availabilities, in order."""
    ours = Partition(settings, 0)

    def take(inputs: Messages) -> list[bytes]:
        outputs, _ = ours.fold(inputs)
        # Only ours has the sums; they are encoded as well.
        encoded = [(output.message, codec.encode(output.message)) for output in outputs]
        return [row for message, row in encoded if isinstance(message, Availability)]

    return take


def pulls(settings: Settings, inputs: Messages) -> list[bytes]:
    """Fold messages as a processor does, as many as it pulls at once."""
    take, size = partition(settings), settings.process.batch
    return [row for start in range(0, len(inputs), size) for row in take(inputs[start : start + size])]


def chained(settings: Settings, inputs: Messages, nodes: int) -> dict[str, float]:
    """Return every node's unrounded availability after the last second, by the chain with all nodes at once."""
    params = Params(settings, choose(settings))
    state = chain.init(nodes, params)
    for start in range(0, len(inputs), nodes):
        items, _ = decode.messages(inputs[start : start + nodes], "")
        blocks = [item for item in items if isinstance(item, decode.Block)]
        heads = [block.message for block in blocks]
        sizes = np.ones((nodes, len(params.features)))
        sizes[:, params.resources] = [(head.cpus, head.memory_bytes) for head in heads]
        batch = Batch(
            samples=decode.samples(blocks),
            step=np.array([head.step_us / 1e6 for head in heads]),
            at_us=np.array([head.at_us + (head.samples - 1) * head.step_us for head in heads]),
            sizes=sizes,
            stirred=np.zeros(nodes, dtype=np.bool_),
            allocatable=np.full((nodes, 3), np.nan),
        )
        state, result = chain.update(state, batch, GlobalModel(), params=params)
    return dict(zip([head.node for head in heads], result.room.available.tolist(), strict=True))


def difference(ours: list[bytes], theirs: list[bytes]) -> int:
    """Return the largest difference of two sets of rows, in units of the last digit.

    Raises:
        AssertionError: A row is in one set only, or a value that is not a number differs.
    """
    worst = 0.0
    rows = [{(row["seq"], row["node"]): row for row in map(json.loads, outputs)} for outputs in (ours, theirs)]
    assert rows[0].keys() == rows[1].keys(), "a row is on one side only"
    digits = {"available": 4, "lower": 4, "upper": 4, "signal": 4, "cost": 9}
    for key, row in rows[0].items():
        left, right = _flat(row), _flat(rows[1][key])
        assert left.keys() == right.keys()
        for name, value in left.items():
            if isinstance(value, float):
                worst = max(worst, abs(value - right[name]) * 10 ** digits.get(name, 6))
            else:
                assert value == right[name], f"{key}: {name} is {value} and {right[name]}"
    return round(worst)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    nested = {
        f"{name}.{key}": item for name, value in row.items() if isinstance(value, dict) for key, item in value.items()
    }
    return {name: value for name, value in row.items() if not isinstance(value, dict)} | nested


def compare_folds(nodes: int, seconds: int, noise: float, rounds: int) -> dict[str, Any]:
    """Fold the same messages by each side in turn."""
    settings = all_settings.load({"smoothing_publish": "false"}, environ={})
    inputs, written = messages(nodes, seconds, noise), list[Written]()

    def make() -> Written:
        written.append(Written(settings))
        return written[-1]

    batch = settings.process.batch
    sides: dict[str, Callable[[], list[bytes]]] = {
        "spazio": lambda: pulls(settings, inputs),
        NODE: lambda: bytewax.by_node(inputs, lambda: Chained(settings), batch),
        WRITTEN: lambda: bytewax.by_node(inputs, make, batch),
        PARTITION: lambda: bytewax.by_partition(inputs, partition(settings), batch),
    }
    spent: dict[str, float] = dict.fromkeys(sides, np.inf)
    rows: dict[str, list[bytes]] = {}
    for _ in range(rounds):
        for name, side in sides.items():
            written.clear()
            began = time.process_time()
            rows[name] = side()
            spent[name] = min(spent[name], time.process_time() - began)
            if name == WRITTEN:
                available = {node.name: node.room.available for node in written if node.room}
    assert sorted(rows["spazio"]) == sorted(rows[NODE]) == sorted(rows[PARTITION]), "the same functions differ"
    assert difference(rows["spazio"], rows[WRITTEN]) <= 1, "the fold written for one node differs"
    expected = chained(settings, inputs, nodes)
    error = max(abs(value - available[name]) / max(1.0, value) for name, value in expected.items())
    assert error < _EXACT, f"availabilities differ by {error:g}"
    rates = {name: len(inputs) / least for name, least in spent.items()}
    return {
        "nodes": nodes,
        "blocks": len(inputs),
        "rows": len(rows["spazio"]),
        "blocks_per_cpu_second": {name: round(rate) for name, rate in rates.items()},
        "ratio": {name: round(rates["spazio"] / rates[name], 1) for name in (NODE, WRITTEN, PARTITION)},
        "availability_error": error,
    }


def compare_loops(compared: loop.Compared, nodes: int, peer: str) -> dict[str, Any]:
    """Return a comparison's figures."""
    assert compared.error < _SAME, f"results differ by {compared.error:g}"
    return {
        "nodes": nodes,
        "us_per_node": {"spazio": round(compared.ours_us, 3), peer: round(compared.peer_us, 1)},
        "ratio": {peer: round(compared.ratio, 1)},
        "error": compared.error,
    }


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000, help="nodes whose messages are folded")
    parser.add_argument("--seconds", type=int, default=20, help="blocks of each of them")
    parser.add_argument("--noise", type=float, default=0.005, help="deviation of a sample of CPU utilisation, ratio")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side of the fold")
    parser.add_argument("--loop-nodes", type=int, default=10_000, help="nodes of the model and the estimator")
    parser.add_argument("--updates", type=int, default=6, help="updates of each of them")
    return parser.parse_args()


def main() -> int:
    """Print one JSON document."""
    asked = arguments()
    with import_module("threadpoolctl").threadpool_limits(1):
        loops = {
            "model": (loop.moments, "scikit-learn"),
            "model, reference form": (loop.subspaces, "scikit-learn"),
            "estimator": (loop.estimators, "filterpy"),
        }
        results = {"fold": compare_folds(asked.nodes, asked.seconds, asked.noise, asked.rounds)} | {
            name: compare_loops(compare(asked.loop_nodes, asked.updates), asked.loop_nodes, peer)
            for name, (compare, peer) in loops.items()
        }
    promised = [
        {"what": what, "beside": peer, "at_least": least, "ratio": results[what]["ratio"][peer]}
        for (what, peer), least in PROMISED.items()
    ]
    missed = [promise for promise in promised if promise["ratio"] < promise["at_least"]]
    versions = {"python": sys.version.split()[0]} | {name: version(name) for name in _PEERS}
    print(json.dumps(results | {"promised": promised, "missed": missed, "versions": versions}, indent=2))
    return 1 if missed else 0
