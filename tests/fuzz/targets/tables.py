"""Recordings from elsewhere, as `replay` reads them from CSV."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from producers.recorded import recording
from producers.recorded.block import Unusable
from producers.recorded.mapping import Unmapped
from schemas import codec
from schemas.messages.telemetry import SampleBlock
from schemas.sections.generator import Replay
from tests.fuzz.session import Run, Target

_OWN = b"node,seconds,cpu_util,memory_util\nn1,1700000000.0,0.5,0.25\nn1,1700000000.1,0.6,0.25\nn2,1700000001,,1\n"
_OTHERS = b'host,ts,CPU %,mem\n"a, b",2023-11-14 22:13:20,50,1000000\nc.d,2023-11-14T22:13:21Z,7e1,2e6\n'
_TOKENS = (b"node", b"seconds", b"time", b"at_us", b"cpu_util", b",,", b'"', b"\n\n", b"1700000000", b"-infinity", b";")


def target() -> Target:
    """Return the target; the first byte chooses the mapping of columns."""
    return Target("replay", [b"\0" + _OWN, b"\1" + _OTHERS], _opened, (Unmapped, Unusable, duckdb.Error), _TOKENS)


@contextmanager
def _opened() -> Iterator[Run]:
    sizes = {"cpus": 4, "memory_bytes": 8 << 30}
    mapping = "node=host,seconds=ts,cpu_util=CPU %/100,memory_used=mem"
    replays = [Replay.model_validate(sizes), Replay.model_validate(sizes | {"map": mapping})]
    with tempfile.TemporaryDirectory() as folder:
        path, work = Path(folder) / "trace.csv", Path(folder) / "work"

        def once(data: bytes) -> None:
            path.write_bytes(data[1:])
            try:
                with recording.opened([path], replays[data[:1] == b"\1"], work) as opened:
                    if not opened.prepared.rows:
                        return
                    opened.check()
                    for number, message in enumerate(opened.messages()):
                        codec.decode(SampleBlock, message.payload)
                        if number > 100:
                            break
            finally:
                shutil.rmtree(work, ignore_errors=True)

        yield once
