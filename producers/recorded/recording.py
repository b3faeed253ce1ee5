"""A recording as one sequence of messages in order of time: a file, several, or a whole history."""

import heapq
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import duckdb
from pydantic import ValidationError

from producers.recorded import beside, block, mapping, prepare
from producers.recorded.mapping import Unmapped
from producers.recorded.prepare import Prepared
from schemas.sections.generator import Replay

_ROWS = 200_000
_REASON = 300
# Kinds of messages by the table of the history that they lie in.
_MODELS = "models"
_TABLES = {"nodes": "nodefacts", "podfacts": "podfacts", "containers": "containers", "pods": "pods"}


class Recorded(NamedTuple):
    """A message.

    Attributes:
        place: Where it stood among the others.
        end_us: When it was published, by the clock of the recording.
        kind, node: Of its subject; the global model has no node.
        identity: Its id.
        rows: Samples in it.
        payload: The message itself.
    """

    place: int
    end_us: int
    kind: str
    node: str
    identity: str
    rows: int
    payload: bytes


class Recording:
    """What was recorded.

    Attributes:
        prepared: Its samples.
        kinds: Kinds of messages that it has.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        prepared: Prepared,
        tables: dict[str, list[Path]],
        streams: list[str],
        replay: Replay,
    ) -> None:
        self.prepared, self.kinds = prepared, ["samples", *tables]
        self._connection, self._tables, self._replay = connection, tables, replay
        self._streams = streams if prepared.exact else []

    def check(self) -> None:
        """See that the size of each node is recorded or given; a single row without one shows only on the way.

        Raises:
            producers.recorded.block.Unusable: Nothing says the size of a node.
        """
        sizes = {"cpus": self._replay.cpus, "memory_bytes": self._replay.memory_bytes}
        lacking = " OR ".join(f"coalesce(max({name}), 0) = 0" for name, given in sizes.items() if not given)
        if not lacking:
            return
        found = self._connection.execute(
            f"SELECT node FROM read_parquet(?) GROUP BY node HAVING {lacking} ORDER BY node LIMIT 1",  # noqa: S608
            [str(self.prepared.path)],
        ).fetchone()
        if found:
            raise block.unsized(str(found[0]))

    def leave_out_model(self, features: Sequence[str]) -> str:
        """Leave out the recorded global model if it is of other features than these; returns which, empty: it stays.

        A processor ignores a model of other features, so replaying it would leave all nodes without any.
        """
        files = [str(file) for file in self._tables.get("model", [])]
        if not files:
            return ""
        query = "SELECT DISTINCT features FROM read_parquet(?, union_by_name = true) WHERE scope = 'global'"
        recorded = {",".join(row[0]) for row in self._connection.execute(query, [files]).fetchall()}
        others = sorted(recorded - {",".join(features)})
        if others:
            del self._tables["model"]
            self.kinds.remove("model")
        return " and ".join(others)

    def messages(self, shift_us: int = 0) -> Iterator[Recorded]:
        """Yield every message, so much later than it was recorded.

        Raises:
            producers.recorded.block.Unusable: Samples make no blocks, or other rows are not what a history has.
        """
        sources = [self._beside(kind, files, shift_us) for kind, files in self._tables.items()]
        # At the same time a block comes first, as agents send it.
        return heapq.merge(self._blocks(shift_us), *sources, key=attrgetter("place"))

    def _blocks(self, shift_us: int) -> Iterator[Recorded]:
        replay = self._replay
        for made in block.read(
            self.prepared,
            cpus=replay.cpus,
            memory_bytes=replay.memory_bytes,
            step_seconds=replay.step_seconds,
            rows=_ROWS,
        ):
            identity = f"samples:{made.node}:{made.boot}:{made.seq}"
            yield Recorded(
                made.place, made.end_us, "samples", made.node, identity, made.samples, made.payload(shift_us)
            )

    def _beside(self, kind: str, files: list[Path], shift_us: int) -> Iterator[Recorded]:
        try:
            for made in beside.read(self._connection, kind, files, self._streams):
                identity = f"{kind}:{made.node}:{made.identity}"
                yield Recorded(made.place, made.at_us, kind, made.node, identity, 0, made.payload(shift_us))
        except (duckdb.Error, ValidationError, KeyError) as error:
            reason = f"there is no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())[:_REASON]
            raise block.Unusable(f"{kind}: rows are not what a history has: {reason}") from error


@contextmanager
def opened(paths: Sequence[Path], replay: Replay, folder: Path) -> Iterator[Recording]:
    """Prepare a recording for the length of a block.

    Args:
        paths: CSV or Parquet files, folders of such, or one folder of a history.
        replay: Settings.
        folder: For what is sorted on the way; it may grow as large as the recording.

    Raises:
        Unmapped: A file is missing, cannot be read or lacks a column.
    """
    given = mapping.parse(replay.map)
    tables: dict[str, list[Path]] = {}
    streams: list[str] = []
    if len(paths) == 1 and (paths[0] / "samples").is_dir():
        files = _files(paths[0] / "samples")
        for name, kind in _TABLES.items():
            if (paths[0] / name).is_dir():
                tables[kind] = _files(paths[0] / name)
        streams = sorted({created for file in files if (created := file.name.partition("-")[0]).endswith("Z")})
    else:
        files = [file for path in paths for file in _files(path)]
    if len({file.name.removesuffix(".gz").endswith(".csv") for file in files}) > 1:
        raise Unmapped(f"{paths[0]}: CSV and Parquet files cannot be replayed together; name one kind")
    connection = prepare.connect(folder)
    try:
        prepared = prepare.samples(connection, files, given, streams, folder / "samples.parquet")
        if prepared.exact and (paths[0] / _MODELS).is_dir():
            tables["model"] = _files(paths[0] / _MODELS)
        yield Recording(connection, prepared, tables, streams, replay)
    finally:
        connection.close()


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = [
        file
        for pattern in ("*.parquet", "*.csv", "*.csv.gz")
        for file in path.rglob(pattern)
        if not file.name.startswith(".")
    ]
    if not found:
        why = "holds no Parquet and no CSV file" if path.is_dir() else "is not there"
        raise Unmapped(f"{path}: {why}; name a file, or the folder of a history")
    return sorted(found)
