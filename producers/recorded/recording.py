"""A recording as one sequence of messages in order of time: a file, several, or a whole history."""

import heapq
import itertools
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
from schemas import subject
from schemas.sections.generator import Replay

_ROWS = 200_000
_REASON = 300
_PARQUET = b"PAR1"  # how such a file begins
_ENDINGS = (".parquet", ".csv", ".csv.gz")
# Kinds of messages by their table of the history.
_MODELS = "models"
_TABLES = {"nodes": "nodefacts", "podfacts": "podfacts", "containers": "containers", "pods": "pods"}
# The other tables that an export may have, of what spazio has computed: a replay computes that itself.
_COMPUTED = {
    "smoothed", _MODELS, "availability", "predictions", "rejects", "subspaces", "forecasts", "decisions", "trust"
}  # fmt: skip


class Recorded(NamedTuple):
    """A message.

    Attributes:
        position: Sort key among all messages.
        end_us: Time of its publication, by the clock of the recording.
        kind, node: Parts of its subject; the global model has no node.
        identity: Its id.
        rows: Samples in it.
        payload: The message itself.
    """

    position: int
    end_us: int
    kind: str
    node: str
    identity: str
    rows: int
    payload: bytes


class Sources(NamedTuple):
    """What a recording is read from.

    Attributes:
        samples: Files of samples.
        others: Files of other kinds of messages.
        streams: Streams that a history was written from, oldest first.
        unread: Files of such kinds in CSV, of which samples alone are read.
    """

    samples: list[Path]
    others: dict[str, list[Path]]
    streams: list[str]
    unread: list[Path]


class Recording:
    """A recording.

    Attributes:
        prepared: Its samples.
        kinds: Its kinds of messages.
        unread: Its files that are left out.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, prepared: Prepared, sources: Sources, replay: Replay
    ) -> None:
        self.prepared, self.kinds, self.unread = prepared, ["samples", *sources.others], sources.unread
        self._connection, self._tables, self._replay = connection, sources.others, replay
        self._streams = sources.streams if prepared.exact else []

    def check(self) -> None:
        """Check that the size of each node is recorded or given; `messages` finds single rows without a size.

        Raises:
            producers.recorded.block.Unusable: The size of a node is unknown.
        """
        sizes = {"cpus": self._replay.cpus, "memory_bytes": self._replay.memory_bytes}
        lacking = " OR ".join(f"coalesce(max({name}), 0) = 0" for name, given in sizes.items() if not given)
        if not lacking:
            return
        unsized = self._connection.execute(
            f"SELECT node FROM read_parquet(?) GROUP BY node HAVING {lacking} ORDER BY node LIMIT 1",  # noqa: S608
            [str(self.prepared.path)],
        ).fetchone()
        if unsized:
            raise block.unsized(str(unsized[0]))

    def period_seconds(self) -> float:
        """Return the usual time between two seconds in which a node has samples: 1 or more, by the first rows."""
        query = (
            "WITH first AS (SELECT node, at_us // 1000000 AS second FROM read_parquet(?) LIMIT ?), "
            "steps AS (SELECT node, second - lag(second) OVER (PARTITION BY node ORDER BY second) AS step FROM "
            "(SELECT DISTINCT node, second FROM first)) SELECT coalesce(median(step), 1) FROM steps"
        )
        (row,) = self._connection.execute(query, [str(self.prepared.path), _ROWS]).fetchall()
        return max(1.0, float(row[0]))

    def nodes(self) -> list[str]:
        """Return the nodes with samples."""
        query = "SELECT DISTINCT node FROM read_parquet(?) ORDER BY node"
        return [str(row[0]) for row in self._connection.execute(query, [str(self.prepared.path)]).fetchall()]

    def partitions(self, likely: int) -> int:
        """Return how many partitions made models; 0: the recording does not tell.

        A small cluster leaves partitions without nodes, perhaps the last. So the number is the smallest with which the
        nodes are in the partitions that made models, and in no other.

        Args:
            likely: A number that is taken if it agrees, although a smaller one does, too.
        """
        files = [str(file) for file in self._tables.get("model", [])]
        if not files:
            return 0
        query = "SELECT DISTINCT partition FROM read_parquet(?, union_by_name = true) WHERE partition IS NOT NULL"
        recorded = {int(row[0]) for row in self._connection.execute(query, [files]).fetchall()}
        if not recorded:
            return 0
        least, nodes = max(recorded) + 1, [subject.token(node) for node in self.nodes()]
        for number in itertools.chain((likely,), range(least, subject.PARTITIONS_MAX + 1)):
            if recorded == {subject.partition(node, number) for node in nodes}:
                return number
        return least

    def leave_out_model(self, features: Sequence[str], *, ratios: bool) -> str:
        """Exclude the recorded global model if it has other features or units; return what these are, empty: the same.

        A processor ignores such a model, so all nodes of the replay would lack one. They would too if models were
        recorded, and no global one: a short history may have no more.

        Args:
            features: Features of the replay's model.
            ratios: Whether it is in ratios of each node, as in the reference variant.
        """
        files = [str(file) for file in self._tables.get("model", [])]
        if not files:
            return ""
        # Histories of earlier versions lack the column.
        query = (
            "SELECT DISTINCT features, ratios FROM ((SELECT NULL::BOOLEAN AS ratios LIMIT 0) UNION ALL BY NAME "
            "SELECT * FROM read_parquet(?, union_by_name = true)) WHERE scope = 'global'"
        )
        rows = self._connection.execute(query, [files]).fetchall()
        recorded = {",".join(names) + (" in ratios" if relative else "") for names, relative in rows}
        others = sorted(recorded - {",".join(features) + (" in ratios" if ratios else "")})
        if others or not recorded:
            del self._tables["model"]
            self.kinds.remove("model")
        return " and ".join(others)

    def messages(self, shift_us: int = 0) -> Iterator[Recorded]:
        """Yield every message, with its times moved later by `shift_us`.

        Raises:
            producers.recorded.block.Unusable: Samples form no blocks, or other rows are not from a history.
        """
        sources = [self._beside(kind, files, shift_us) for kind, files in self._tables.items()]
        # Of messages with the same time a block comes first, as agents send it.
        return heapq.merge(self._blocks(shift_us), *sources, key=attrgetter("position"))

    def _blocks(self, shift_us: int) -> Iterator[Recorded]:
        replay = self._replay
        for samples in block.read(
            self.prepared,
            cpus=replay.cpus,
            memory_bytes=replay.memory_bytes,
            step_seconds=replay.step_seconds,
            rows=_ROWS,
        ):
            identity = f"samples:{samples.node}:{samples.boot}:{samples.seq}"
            payload = samples.payload(shift_us)
            yield Recorded(
                samples.position, samples.end_us, "samples", samples.node, identity, samples.samples, payload
            )

    def _beside(self, kind: str, files: list[Path], shift_us: int) -> Iterator[Recorded]:
        try:
            for message in beside.read(self._connection, kind, files, self._streams):
                identity = f"{kind}:{message.node}:{message.identity}"
                payload = message.payload(shift_us)
                yield Recorded(message.position, message.at_us, kind, message.node, identity, 0, payload)
        except (duckdb.Error, ValidationError, KeyError) as error:
            reason = f"there is no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())[:_REASON]
            raise block.Unusable(f"{kind}: the rows are not from a history: {reason}") from error


@contextmanager
def opened(paths: Sequence[Path], replay: Replay, folder: Path) -> Iterator[Recording]:
    """Prepare a recording for the duration of a `with` block.

    Args:
        paths: CSV or Parquet files, folders of such, one folder of a history, or one with an export of its tables.
        replay: Settings.
        folder: Folder for sorted data; it may become as large as the recording.

    Raises:
        Unmapped: A file is missing, cannot be read or lacks a column, or it is not clear which files are of samples.
    """
    given = mapping.parse(replay.map)
    sources = _sources(paths)
    if len({_is_csv(file) for file in sources.samples}) > 1:
        raise Unmapped(f"{paths[0]}: CSV and Parquet files cannot be replayed together; give files of one kind")
    connection = prepare.connect(folder)
    try:
        prepared = prepare.samples(connection, sources.samples, given, sources.streams, folder / "samples.parquet")
        if prepared.exact and (paths[0] / _MODELS).is_dir():
            sources.others["model"] = _files(paths[0] / _MODELS)
        yield Recording(connection, prepared, sources, replay)
    finally:
        connection.close()


def _sources(paths: Sequence[Path]) -> Sources:
    folder = paths[0]
    if len(paths) == 1 and (folder / "samples").is_dir():
        others = {kind: _files(folder / name) for name, kind in _TABLES.items() if (folder / name).is_dir()}
        samples = _files(folder / "samples")
        every = itertools.chain(samples, *others.values())
        streams = {created for file in every if (created := file.name.partition("-")[0]).endswith("Z")}
        return Sources(samples, others, sorted(streams), [])
    files = [file for path in paths for file in _files(path)]
    exported = [file for ending in _ENDINGS if (file := folder / f"samples{ending}") in files]
    if len(paths) == 1 and exported:
        return _exported(exported[0], files)
    return Sources(files, {}, [], [])


def _exported(samples: Path, files: list[Path]) -> Sources:
    """Return the files of an export.

    Args:
        samples: Its file of samples.
        files: All its files.

    Raises:
        Unmapped: Another file may have samples, too.
    """
    others, unread = dict[str, list[Path]](), list[Path]()
    for file in files:
        table = file.name.removesuffix(".gz").removesuffix(".csv").removesuffix(".parquet")
        if file != samples and (file.parent != samples.parent or table not in {*_TABLES, *_COMPUTED}):
            raise Unmapped(
                f"{file}: stands beside {samples.name} and may have samples, too; "
                "name each file to replay, or take that one away"
            )
        if table in _TABLES and _is_csv(file):
            unread.append(file)
        elif table in _TABLES:
            others[_TABLES[table]] = [file]
    return Sources([samples], others, [], unread)


def _is_csv(file: Path) -> bool:
    return file.name.removesuffix(".gz").endswith(".csv")


def _check_form(file: Path) -> None:
    """Check that a file is CSV by its name, or Parquet by how it begins.

    Raises:
        Unmapped: It is neither, or cannot be read.
    """
    try:
        with file.open("rb") as content:
            begins = content.read(len(_PARQUET))
    except OSError as error:
        raise Unmapped(f"{file}: cannot be read: {error.strerror}") from error
    if begins != _PARQUET and not _is_csv(file):
        raise Unmapped(
            f"{file}: is neither CSV (*.csv, *.csv.gz) nor Parquet; give such a file, or the folder of a history"
        )


def _files(path: Path) -> list[Path]:
    if path.is_file():
        _check_form(path)
        return [path]
    files = [file for ending in _ENDINGS for file in path.rglob(f"*{ending}") if not file.name.startswith(".")]
    if not files:
        why = "has no Parquet and no CSV file" if path.is_dir() else "does not exist"
        raise Unmapped(f"{path}: {why}; give a file, or the folder of a history")
    return sorted(files)
