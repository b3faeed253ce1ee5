"""`python -m tests.fuzz TARGET [SECONDS] [--seed N] [--keep]`: look for inputs that a reader of bytes cannot stand.

Without a target it lists them; `all` runs one after another. `--keep` stores what it finds in `tests/fuzz/found`, where
the tests run it from then on.
"""

import argparse
import sys
import time

from tests.fuzz import session
from tests.fuzz.targets import TARGETS


def main() -> int:
    """Return 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", nargs="?", choices=[*TARGETS, "all"])
    parser.add_argument("seconds", nargs="?", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    if given.target is None:
        print("\n".join(TARGETS))
        return 0
    result = 0
    for name in TARGETS if given.target == "all" else [given.target]:
        target = TARGETS[name]()
        outcome = session.run(target, given.seconds, given.seed)
        print(
            f"{name}: {outcome.cases} cases in {given.seconds:g} s, {outcome.refused} refused, "
            f"{outcome.growth_bytes / 2**20:.1f} MiB more, {len(outcome.findings)} found (seed {given.seed})",
            flush=True,
        )
        for fault, data in outcome.findings.items():
            print(f"  {fault}\n    {data[:300]!r}", flush=True)
            if given.keep and data:
                print(f"    kept as {session.keep(target, data)}")
        result += len(outcome.findings)
    return int(bool(result))


if __name__ == "__main__":
    sys.exit(main())
