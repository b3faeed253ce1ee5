"""Profile the CPU time of a spazio command by stage: `python -m benchmarks.shares FILE COMMAND...`.

A timer of CPU time interrupts the process a hundred times a CPU second. Each sample goes to the innermost frame whose
file is in the table below. Python handles interrupts at the start of functions and at jumps of loops, so lines are
approximate, and stages are exact.
"""

import json
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

_SECONDS = 0.01
_STAGES = {
    "bus/reading/reader.py": "read",
    "bus/reading/progress.py": "read",
    "bus/publishing/batch.py": "publish",
    "bus/folding/checkpoint.py": "checkpoint",
    "processors/decode.py": "decode",
    "processors/partition/plan.py": "plan",
    "processors/estimation/chain.py": "chain",
    "processors/workload/workloads.py": "classes",
    "processors/partition/report.py": "report",
    "processors/partition/partition.py": "fold",
    "spazio/service/folding.py": "engine",
    "nats/protocol/parser.py": "read",
    "nats/aio/client.py": "client",
    "asyncio/base_events.py": "loop",
}


def watch(stages: Counter[str], lines: Counter[str]) -> None:
    """Count samples by stage, and by the innermost line outside site-packages."""

    def sample(_signal: int, frame: FrameType | None) -> None:
        stage, ours = "", ""
        while frame is not None:
            path = "/".join(frame.f_code.co_filename.rsplit("/", 3)[-3:])
            if not ours and "site-packages" not in frame.f_code.co_filename:
                ours = f"{path.rsplit('/', 1)[-1]}:{frame.f_lineno} {frame.f_code.co_name}"
            if not stage:
                stage = next((name for file, name in _STAGES.items() if path.endswith(file)), "")
            frame = frame.f_back
        stages[stage or "other"] += 1
        lines[ours] += 1

    signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, _SECONDS, _SECONDS)


def main() -> int:
    """Run the command, then write the shares."""
    from spazio import cli, option  # noqa: PLC0415 # the import is measured, too

    target, stages, lines = Path(sys.argv.pop(1)), Counter[str](), Counter[str]()
    watch(stages, lines)
    try:
        option.meant(cli.app, sys.argv[1:])()
    except SystemExit as ended:
        status = ended.code
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        whole = max(1, stages.total())
        shares = {
            name: {key: round(n / whole, 4) for key, n in counts.most_common(40)}
            for name, counts in (("stages", stages), ("lines", lines))
        }
        target.write_text(json.dumps(shares))
    return int(status or 0)


if __name__ == "__main__":
    sys.exit(main())
