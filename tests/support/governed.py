"""Control files of pods in a folder, as kernels lay them out, for tests of the governor."""

from producers.pods.meter import Layout
from tests.support.machine import Host

VERSION_2 = {"cpu.weight": "100", "cpu.idle": "0", "cpu.max": "max 100000", "memory.high": "max"}
VERSION_1 = {"cpu.shares": "1024", "cpu.idle": "0", "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}


class Knobs:
    """The control files of one cgroup of a machine in a folder.

    Args:
        host: The machine.
        path: The cgroup, below the root of each tree.
        own: Contents other than the defaults; None: there is no such file.
    """

    def __init__(self, host: Host, path: str, **own: str | None) -> None:
        version_2 = host.layout == "v2"
        tree = host.root if version_2 else host.root / (host.joined or "cpu")
        self.folder = tree / path
        self.folder.mkdir(parents=True, exist_ok=True)
        given = {name.replace("_", ".", 1): content for name, content in own.items()}
        for name, content in ((VERSION_2 if version_2 else VERSION_1) | given).items():
            if content is not None:
                self[name] = content

    def __getitem__(self, name: str) -> str:
        return (self.folder / name).read_text().strip()

    def __setitem__(self, name: str, content: str) -> None:
        (self.folder / name).write_text(f"{content}\n")

    def all(self) -> dict[str, str]:
        """Return the contents of all files."""
        names = {*VERSION_1, *VERSION_2}
        return {path.name: path.read_text().strip() for path in self.folder.iterdir() if path.name in names}


def layout(host: Host) -> Layout:
    return Layout(host.root)
