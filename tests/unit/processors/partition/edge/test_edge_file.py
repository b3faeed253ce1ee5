"""An edge that is killed and starts again, with its file and without."""

import json
from typing import Any

import numpy as np
import pytest

from processors.partition.edge import Edge
from schemas import codec
from tests.support.processors import telemetry
from tests.unit.processors.partition.edge.both import SETTINGS, load, own


@pytest.mark.slow
def test_an_edge_that_was_killed_and_starts_from_its_file_says_what_one_that_lived_says() -> None:
    random = np.random.default_rng(5)
    blocks = [codec.encode(telemetry.noisy("n", second, 2 + second // 20 % 3, random)) for second in range(120)]
    lived, killed = Edge(SETTINGS, "n"), Edge(SETTINGS, "n")
    for payload in blocks[:60]:
        lived.block(payload)
        killed.block(payload)
    again = Edge(SETTINGS, "n")
    again.load(killed.dump())
    first = json.loads(again.block(blocks[60]) or b"")
    assert {"size", "moment", "at_us"} <= first.keys()  # a reader that missed the last gets everything
    lived.block(blocks[60])
    for payload in blocks[61:]:
        left, right = json.loads(lived.block(payload) or b""), json.loads(again.block(payload) or b"")
        for sometimes in ("size", "moment", "at_us"):
            left.pop(sometimes, None), right.pop(sometimes, None)
        assert left == right
    np.testing.assert_array_equal(own(again).moment, own(lived).moment)


@pytest.mark.slow
def test_without_its_file_the_local_model_is_whole_again_after_half_a_minute() -> None:
    random = np.random.default_rng(5)
    blocks = [codec.encode(telemetry.noisy("n", second, 3, random)) for second in range(150)]
    lived, fresh = Edge(SETTINGS, "n"), Edge(SETTINGS, "n")
    for payload in blocks[:60]:
        lived.block(payload)
    for payload in blocks[60:]:
        lived.block(payload)
        fresh.block(payload)
    # The baseline rests on the reference pod until pods come and go; the smoothed usage above it does not.
    assert np.abs(own(lived).usage - own(fresh).usage).max() == 0
    assert np.abs(own(lived).moment - own(fresh).moment).max() < 0.05


@pytest.mark.parametrize(
    ("change", "reason"),
    [(lambda body: body[:-40], "damaged"), (lambda body: b"", "damaged"), (None, "other settings")],
)
def test_a_file_that_cannot_be_used_is_refused_and_nothing_is_taken_from_it(change: Any, reason: str) -> None:
    edge = Edge(SETTINGS, "n")
    edge.block(codec.encode(telemetry.block("n", 0, cpu_util=0.5)))
    body = edge.dump()
    new = Edge(load(model_tau_seconds="7") if change is None else SETTINGS, "n")
    with pytest.raises(ValueError, match=reason):
        new.load(change(body) if change else body)
    with pytest.raises(ValueError, match="not of node m"):
        Edge(SETTINGS, "m").load(body)
    assert new.block(codec.encode(telemetry.block("n", 0, cpu_util=0.5)))


def test_a_block_that_was_modelled_before_or_cannot_be_is_not_sent() -> None:
    edge = Edge(SETTINGS, "n")
    payload = codec.encode(telemetry.block("n", 1, cpu_util=0.5))
    assert edge.block(payload)
    assert edge.block(payload) is None
    assert edge.block(codec.encode(telemetry.block("n", 0, cpu_util=0.5))) is None
    with pytest.raises(codec.Refused, match="cpu_util is 2"):
        edge.block(codec.encode(telemetry.block("n", 2, cpu_util=2.0)))
