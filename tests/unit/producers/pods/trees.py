"""Cgroups of pods in a folder."""

from pathlib import Path

from producers import source
from producers.pods import pod_count
from producers.pods.census import Census

UIDS = [f"{n:08x}-1b2c-4d3e-8f40-{n:012x}" for n in range(1, 9)]


def container(n: int) -> str:
    return f"{n:064x}"


def make(tree: Path, *paths: str) -> None:
    for path in paths:
        (tree / path).mkdir(parents=True)


class Counter:
    """Counts again at each call, a second later."""

    def __init__(self, root: Path, proc: Path | None = None) -> None:
        self.now = 0.0
        self.census = Census(root, proc or root / "no-proc", clock=lambda: self.now)
        self.source = pod_count.Pods(self.census)

    def __call__(self) -> float | None:
        self.now += 1
        return source.read(self.source, self.now)[0]


def systemd_pod(uid: str, quality: str = "-burstable") -> str:
    escaped = uid.replace("-", "_")
    middle = f"kubepods{quality}.slice/" if quality else ""
    return f"kubepods.slice/{middle}kubepods{quality}-pod{escaped}.slice"
