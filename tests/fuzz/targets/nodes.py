"""What the kernel says of a node and of its cgroups, as the agent reads it."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from producers import cpu, disk, load, memory, network, pressure
from producers.pods import cgroup, meter
from producers.source import Source, whole
from tests.fuzz.session import Run, Target
from tests.fuzz.targets import choice

_FROZEN = Path(__file__).parents[2] / "unit" / "proc"
_CONTAINER = "cri-containerd-" + 64 * "a" + ".scope"
_POD = "kubepods-burstable-pod0a1b2c3d_0000_4000_8000_00000000000f.slice"
_FILES = {
    "cpu.stat": b"usage_usec 123456\nuser_usec 1\nsystem_usec 2\nnr_periods 3\nnr_throttled 1\nthrottled_usec 99\n",
    "memory.current": b"123456789\n",
    "memory.stat": b"anon 1\nfile 2\ninactive_file 4096\nactive_file 3\n",
    "cpu.pressure": b"some avg10=0.00 avg60=0.00 avg300=0.00 total=123\n",
    "memory.pressure": b"some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
    "io.pressure": b"some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
    "cpu.max": b"max 100000\n",
}


def proc() -> Target:
    """Return the target of the sources of a node; each input is measured after the other frozen reading."""
    root = Path("/proc")
    paths = {
        "cpu": "stat", "memory": "meminfo", "disk": "diskstats", "network": "1/net/dev", "load": "loadavg",
        "pressure": "pressure/memory",
    }  # fmt: skip
    made: dict[str, Callable[[], Source]] = {
        "cpu": lambda: cpu.Cpu(root),
        "memory": lambda: memory.Memory(root),
        "disk": lambda: disk.Disk(root),
        "network": lambda: network.Network(root),
        "load": lambda: load.Load(root),
        "pressure": lambda: pressure.Pressure(root, "memory"),
    }
    before = {name: (_FROZEN / "a" / path).read_bytes() for name, path in paths.items()}
    after = {name: (_FROZEN / "b" / path).read_bytes() for name, path in paths.items()}

    def reader(name: str) -> Callable[[bytes], None]:
        def read(content: bytes) -> None:
            source = made[name]()
            source.measure(before[name], 1.0)
            values = source.measure(whole(content), 1.1)
            assert len(values) == len(source.metrics)
            assert all(value is None or isinstance(value, float | int) for value in values)

        return read

    readers = {name: reader(name) for name in paths}
    good = {name: [before[name], after[name]] for name in paths}
    return Target("proc", choice.seeds(readers, good), choice.opened(readers), (ValueError, LookupError))


def cgroups() -> Target:
    """Return the target of cgroup files and names; a file is read as the meter of a container reads it."""
    names = list(_FILES)
    seeds = [bytes([index]) + content for index, content in enumerate(_FILES.values())]
    seeds += [bytes([len(names)]) + name.encode() for name in (_CONTAINER, _POD, "docker-x.scope", "kubepods.slice")]

    @contextmanager
    def opened() -> Iterator[Run]:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "cgroup.controllers").write_text("cpu memory\n")
            (root / "c").mkdir()
            layout = meter.Layout(root)

            def once(data: bytes) -> None:
                if not data:
                    return
                if data[0] % (len(names) + 1) == len(names):
                    _name(data[1:])
                    return
                for name, content in _FILES.items():
                    (root / "c" / name).write_bytes(content)
                (root / "c" / names[data[0] % (len(names) + 1)]).write_bytes(data[1:])
                meter.Meter(layout, str(root / "c"), keep=False).read()

            yield once

    return Target("cgroup", seeds, opened, (OSError, ValueError, LookupError))


def _name(data: bytes) -> None:
    name = data.decode(errors="surrogateescape")
    cgroup.parse(name)
    cgroup.container_id(name)
    cgroup.pod_uid(name)
