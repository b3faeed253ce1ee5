"""What Prometheus takes for the same samples: its own tool makes blocks of them, as its head does every two hours."""

import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from schemas.messages.telemetry import SampleBlock

MISSING = "" if shutil.which("promtool") else "promtool (Debian's package prometheus) is not installed"


def bytes_a_sample(folder: Path, blocks: Sequence[SampleBlock]) -> dict[str, float]:
    """Return the bytes of a sample in a block's chunks, and with the block's index.

    Args:
        folder: An empty folder for text and blocks.
        blocks: Samples, of each node in order of time; values that are not known are left out.
    """
    text, made = folder / "samples.txt", folder / "blocks"
    count = 0
    with text.open("w") as file:
        for line in _lines(blocks):
            file.write(line)
            count += not line.startswith("#")
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(made)]
    subprocess.run(command, check=True, capture_output=True)
    text.unlink()
    sizes = {path: path.stat().st_size for path in made.rglob("*") if path.is_file()}
    chunks = sum(size for path, size in sizes.items() if path.parent.name == "chunks")
    return {"samples": count, "chunks": round(chunks / count, 3), "whole": round(sum(sizes.values()) / count, 3)}


def _lines(blocks: Sequence[SampleBlock]) -> Iterator[str]:
    """Yield OpenMetrics text: one family after the other, in each one node after the other."""
    by_node: defaultdict[str, list[SampleBlock]] = defaultdict(list)
    for block in blocks:
        by_node[block.node].append(block)
    names = list(dict.fromkeys(name for block in blocks for name in block.metrics))
    for name in names:
        yield f"# TYPE {name} gauge\n"
        for node, own in by_node.items():
            for block in own:
                if name in block.metrics:
                    yield from _samples(block, node, name)
    yield "# EOF\n"


def _samples(block: SampleBlock, node: str, name: str) -> Iterator[str]:
    values = block.values[block.metrics.index(name) :: len(block.metrics)]
    for number, value in enumerate(values):
        if value is not None:
            yield f'{name}{{node="{node}"}} {value} {(block.at_us + number * block.step_us) / 1e6:.3f}\n'
