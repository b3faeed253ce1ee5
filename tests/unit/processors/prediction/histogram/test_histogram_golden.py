"""Histograms against runs of Koordinator's own code, to the last bit, in both modes.

The runs are a file beside the checkout, `shared/data/koordinator_histogram_golden.json`: options and their starts,
references, eight nodes over three days, and a single spike over 60 days. Floats are hexadecimal there.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from processors.prediction.histogram import bucket, elementary, exchange, histogram

GOLDEN = Path(__file__).parents[6] / "shared" / "data" / "koordinator_histogram_golden.json"
BEGAN = 1_700_000_000
FRACTIONS = ["0.6", "0.9", "0.95", "0.98", "1"]
CPU, MEMORY = bucket.KOORDINATOR_CPU, bucket.KOORDINATOR_MEMORY
RESOURCES = {
    "cpu": (CPU, bucket.KOORDINATOR_CPU_HALF_LIFE_SECONDS),
    "mem": (MEMORY, bucket.KOORDINATOR_MEMORY_HALF_LIFE_SECONDS),
}
OPTIONS = {"koord_cpu": CPU, "koord_mem": MEMORY, "vpa_cpu": bucket.VPA_CPU, "vpa_mem": bucket.VPA_MEMORY}

pytestmark = pytest.mark.skipif(not GOLDEN.exists(), reason=f"{GOLDEN.name} is not beside this checkout")
both = pytest.mark.parametrize("compat", [False, True])


@cache
def golden() -> Any:
    return json.loads(GOLDEN.read_text())


@pytest.mark.parametrize("name", OPTIONS)
def test_buckets_are_the_same_numbers(name: str) -> None:
    options, result = OPTIONS[name], golden()["options"][name]
    assert options.epsilon == float.fromhex(golden()["eps"])
    assert options.starts.tolist() == [float.fromhex(start) for start in result["starts"]]
    assert options.find(options.starts).tolist() == result["find_of_start"]
    values, places = zip(*result["probes"], strict=True)
    assert options.find(values).tolist() == list(places)


def test_references_and_factors_are_the_same_numbers() -> None:
    for row in golden()["refround"]:
        state = histogram.add(
            histogram.init(1, CPU), np.ones(1), 1.0, row["ts"], options=CPU, half_life_seconds=row["hl_h"] * 3600
        )
        assert (state.reference[0], state.total[0]) == (row["ref"], float.fromhex(row["whex"]))


@cache
def simulated(compat: bool) -> dict[int, dict[str, histogram.State]]:
    """Return the states of the eight nodes after as many samples as there are rows of."""
    seeds = np.array([run["seed"] for run in golden()["sims"]])
    wanted = {row["k"] for run in golden()["sims"] for row in run["rows"]}
    states = {name: histogram.init(len(seeds), options) for name, (options, _) in RESOURCES.items()}
    kept, drawn = {}, seeds.astype(np.int64)
    for minute in range(4320):
        drawn = (1103515245 * drawn + 12345) % 2**31
        noise, phase = drawn / 2**31, minute % 1440 / 1440
        wave = 2 * phase if phase < 0.5 else 2 - 2 * phase
        usage = {"cpu": seeds * (0.5 + 2 * wave + noise), "mem": np.floor((2 * seeds + 4 * wave + noise) * 2**30)}
        for name, (options, half_life) in RESOURCES.items():
            states[name] = histogram.add(
                states[name],
                usage[name],
                1.0,
                BEGAN + 60 * minute,
                options=options,
                half_life_seconds=half_life,
                compat=compat,
            )
        if minute + 1 in wanted:
            kept[minute + 1] = dict(states)
    return kept


@pytest.mark.slow
@both
def test_eight_nodes_over_three_days_are_the_same_numbers(compat: bool) -> None:
    fractions = [float(fraction) for fraction in FRACTIONS]
    for node, run in enumerate(golden()["sims"]):
        for row in run["rows"]:
            for name, (options, _) in RESOURCES.items():
                state, expected = simulated(compat)[row["k"]][name], row[name]
                read = histogram.percentile(state, fractions, options=options, compat=compat)[node]
                assert read.tolist() == [float.fromhex(expected["p"][fraction][0]) for fraction in FRACTIONS]
                assert state.total[node] == float.fromhex(expected["total"])
                bounds = state.low[node], state.high[node], state.reference[node]
                assert bounds == (expected["min"], expected["max"], expected["ref"])


@pytest.mark.slow
@both
def test_milli_cores_and_bytes_are_the_same_numbers(compat: bool) -> None:
    for node, run in enumerate(golden()["sims"]):
        for row in run["rows"]:
            states = simulated(compat)[row["k"]]
            cores = histogram.percentile(states["cpu"], [0.95], options=CPU, compat=compat)[node, 0]
            size = histogram.percentile(states["mem"], [0.98], options=MEMORY, compat=compat)[node, 0]
            assert (int(cores * 1000), int(size)) == (row["p95cpu_milli"], row["p98mem"])


def test_factors_of_the_last_samples_are_the_same_numbers() -> None:
    for row in golden()["sims"][0]["rows"]:
        for name, (_, half_life) in RESOURCES.items():
            last = BEGAN + 60 * (row["k"] - 1)
            assert elementary.exp2((last - row[name]["ref"]) / half_life) == float.fromhex(row[name]["decay"])


@pytest.mark.slow
@both
def test_checkpoints_are_the_same_and_restored_ones_read_the_same(compat: bool) -> None:
    state = simulated(compat)[4320]["cpu"]
    for node, run in enumerate(golden()["sims"]):
        document = json.loads(run["cpu_ckpt"])
        assert exchange.write(state, node, options=CPU, compat=compat) == document
        restored = exchange.read(document, options=CPU, half_life_seconds=12 * 3600, compat=compat)
        expected = run["cpu_restored"]
        read = histogram.percentile(restored, [float(name) for name in expected["p"]], options=CPU, compat=compat)[0]
        assert read.tolist() == list(expected["p"].values())
        bounds = restored.low[0], restored.high[0], restored.reference[0], restored.total[0]
        assert bounds == (expected["min"], expected["max"], expected["ref"], expected["total"])


@pytest.mark.slow
def test_in_compat_a_spike_lasts_as_long_as_theirs_and_by_default_for_13_half_lives() -> None:
    """A sample of 50 at first, then one of 2 every 10 minutes for 60 days, CPU half-life."""
    wanted = {round(row["day"] * 144): row for row in golden()["longrun"]}
    state = histogram.init(1, CPU)
    for count in range(60 * 144 + 1):
        value = np.array([50.0 if count == 0 else 2.0])
        at = BEGAN + 600 * count
        state = histogram.add(state, value, 1.0, at, options=CPU, half_life_seconds=43200, compat=True)
        if count in wanted:
            row = wanted[count]
            read = histogram.percentile(state, [0.95, 0.98, 0.999, 1], options=CPU, compat=True)[0]
            assert read.tolist() == [row["p95"], row["p98"], row["p999"], row["p100"]]
            result = state.low[0], state.high[0], state.reference[0], state.total[0]
            assert result == (row["min"], row["max"], row["ref"], row["total"])
            peak = histogram.percentile(state, [1], options=CPU)[0, 0]
            assert peak == CPU.ends[CPU.find(50.0 if row["day"] < 6.6 else 2.0)]
