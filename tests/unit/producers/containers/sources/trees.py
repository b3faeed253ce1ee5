"""Trees of cgroups in a folder, as kernels lay them out."""

from pathlib import Path

from producers.containers.sources.cgroup import Cgroup

A, B, C = (digit * 64 for digit in "abc")
NEVER = 3600.0
OFTEN = 0.02


def v1(tmp_path: Path, *, unified: bool) -> Path:
    made = tmp_path / "cgroup"
    for name in ("pids", "unified") if unified else ("pids",):
        (made / name).mkdir(parents=True)
    return made


def make(path: Path, *, populated: bool = False, version: int = 2) -> Path:
    """Make a container's cgroup as the kernel does, with its files in it."""
    path.mkdir(parents=True)
    populate(path, populated=populated, version=version)
    return path


def populate(path: Path, *, populated: bool, version: int = 2) -> None:
    if version == 2:
        (path / "cgroup.events").write_text(f"populated {populated:d}\nfrozen 0\n")
    else:
        (path / "pids.current").write_text(f"{populated:d}\n")


def follow(root: Path, *, rescan_seconds: float = NEVER, proc: Path | None = None) -> Cgroup:
    return Cgroup(root, proc or root / "no-proc", rescan_seconds=rescan_seconds)
