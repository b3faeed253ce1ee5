"""The file of a backup: a tar whose last entry, `manifest.json`, names every other with its size and SHA-256.

It is written under a name that ends in `.partial` and renamed when it is whole, so an interrupted backup never looks
like one. Entries that the manifest does not name are remains of a copy that was repeated, and are ignored.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from bus.access import file_lock

FORMAT = 1
MANIFEST = "manifest.json"
_PARTIAL = ".partial"
_CHUNK_BYTES = 1 << 20
_MOST_MANIFEST_BYTES = 256 << 20
# Relative, without a step up, and nothing but what file names of the history, streams and credentials consist of.
_NAME = re.compile(r"(?!.*(^|/)\.\.(/|$))[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*")


class Damaged(ValueError):
    """The file is not a whole backup; the message says what is wrong with it."""


class Busy(ValueError):
    """Another process writes this backup."""


class Unnameable(ValueError):
    """A backup has no such names of files; the message says what to do."""


class Entry(NamedTuple):
    """Size in bytes and SHA-256 of one entry."""

    bytes: int
    sha256: str


class Writer:
    """Writes a backup; a context manager, which leaves nothing behind unless `finish` was called."""

    def __init__(self, path: Path) -> None:
        """Begin.

        Args:
            path: The backup; it does not exist until it is whole.

        Raises:
            Busy: Another process writes it.
            OSError: Its folder cannot be written.
        """
        self._path, self._partial = path, path.with_name(path.name + _PARTIAL)
        self._file = os.fdopen(os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b")
        try:
            file_lock.take(self._file)
        except OSError as error:
            self._file.close()
            raise Busy(f"another process writes {path}") from error
        status = os.fstat(self._file.fileno())
        if not (self._partial.exists() and os.path.samestat(self._partial.stat(), status)):
            self._file.close()  # of another process, which has finished it meanwhile
            raise Busy(f"another process has just written {path}")
        if status.st_uid != os.geteuid() or status.st_nlink != 1:  # who made it could still read what is written
            self._file.close()
            raise PermissionError(errno.EPERM, "belongs to somebody else, remove it", str(self._partial))
        os.fchmod(self._file.fileno(), 0o600)  # it may be what a killed backup left
        self._file.truncate(0)
        self._tar = tarfile.open(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 # see finish
        self._finished = False
        self.entries: dict[str, Entry] = {}

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the file unless it is whole."""
        if not self._finished:
            self._partial.unlink(missing_ok=True)
        self._file.close()

    def add(self, name: str, source: IO[bytes]) -> None:
        """Append the rest of an open file as an entry.

        Raises:
            Unnameable: The name is not one that a reader accepts.
            OSError: The disk is full, or the file became shorter meanwhile.
        """
        if not _NAME.fullmatch(name):
            raise Unnameable(
                f"{name!r} cannot be in a backup, whose names have letters, digits and . _ = - only; "
                "rename the file, or move it elsewhere"
            )
        size = os.fstat(source.fileno()).st_size - source.tell()
        header = tarfile.TarInfo(name)
        header.size, header.mode = size, 0o600
        digesting = _Digesting(source)
        self._tar.addfile(header, digesting)
        self.entries[name] = Entry(size, digesting.sha256.hexdigest())

    def add_bytes(self, name: str, content: bytes) -> None:
        """Append bytes as an entry."""
        with self.spool() as spool:
            spool.write(content)
            spool.seek(0)
            self.add(name, spool)

    def add_path(self, name: str, path: Path) -> None:
        """Append a file as an entry.

        Raises:
            FileNotFoundError: There is no such file.
        """
        with path.open("rb") as source:
            self.add(name, source)

    @contextmanager
    def spool(self) -> Iterator[IO[bytes]]:
        """Yield an empty file without a name, on the same disk."""
        with tempfile.TemporaryFile(dir=self._path.parent) as spool:
            yield spool

    def forget(self, name: str) -> None:
        """Leave an entry out of the manifest."""
        del self.entries[name]

    def finish(self, about: dict[str, Any]) -> None:
        """Write the manifest, sync, and give the file its name.

        Args:
            about: What the manifest says beside the entries.

        Raises:
            OSError: The disk is full.
        """
        entries = {name: entry._asdict() for name, entry in self.entries.items()}
        body = {"format": FORMAT, **about, "entries": entries}
        self.add_bytes(MANIFEST, json.dumps({"sha256": _digest(body), "body": body}, indent=1).encode())
        self._tar.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._partial.replace(self._path)
        self._finished = True
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class _Digesting:
    """A file for reading, whose bytes are digested as they are read."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source, self.sha256 = source, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._source.read(size)
        self.sha256.update(piece)
        return piece


class Reader:
    """A whole backup.

    Attributes:
        path: Its file.
        about: What the manifest says beside the entries; `about.check` looks whether it can be used.
        entries: What it holds, by name.
    """

    def __init__(self, path: Path, tar: tarfile.TarFile) -> None:
        self.path, self._tar = path, tar
        try:
            members = {member.name: member for member in tar if member.isreg()}
            self._members = members
            self.about = self._manifest()
        except (tarfile.TarError, EOFError, OSError) as error:
            raise Damaged(f"{path} is truncated or damaged: {error}; nothing was restored") from error

    def _manifest(self) -> dict[str, Any]:
        member = self._members.get(MANIFEST)
        if member is None or member.size > _MOST_MANIFEST_BYTES:
            raise Damaged(f"{self.path} is truncated or no backup: it does not end in a manifest; nothing was restored")
        file = self._tar.extractfile(member)
        assert file is not None  # it is a regular file
        try:
            content = json.load(file)
            body, digest = dict(content["body"]), content["sha256"]
            self.entries = {
                str(name): Entry(int(each["bytes"]), str(each["sha256"])) for name, each in body["entries"].items()
            }
        except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise Damaged(f"{self.path} has a damaged manifest; nothing was restored") from error
        if _digest(body) != digest:
            raise Damaged(f"{self.path} has a damaged manifest; nothing was restored")
        if body.get("format") != FORMAT:
            raise Damaged(
                f"{self.path} has format {body.get('format')}, this version reads {FORMAT}; "
                "restore it with the version that made it"
            )
        return body

    def verify(self) -> None:
        """Read every entry and compare it with the manifest.

        Raises:
            Damaged: An entry is missing or differs.
        """
        for name, entry in self.entries.items():
            if not _NAME.fullmatch(name):
                raise Damaged(f"{self.path} has an entry {name!r}, which no backup has; nothing was restored")
            digest, size = hashlib.sha256(), 0
            try:
                for piece in self.pieces(name):
                    digest.update(piece)
                    size += len(piece)
            except (KeyError, tarfile.TarError, EOFError, OSError) as error:
                raise Damaged(f"{self.path} lacks {name}; nothing was restored") from error
            if Entry(size, digest.hexdigest()) != entry:
                raise Damaged(f"{self.path} is damaged: {name} is not what was saved; nothing was restored")

    def pieces(self, name: str, size: int = _CHUNK_BYTES) -> Iterator[bytes]:
        """Yield the bytes of an entry."""
        file = self._tar.extractfile(self._members[name])
        assert file is not None  # it is a regular file
        with file:
            while piece := file.read(size):
                yield piece

    def extract(self, name: str, path: Path, *, mode: int = 0o600) -> None:
        """Write an entry to a new file and sync it; without a mode only this user may read it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as file:
            for piece in self.pieces(name):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())

    def below(self, folder: str) -> list[str]:
        """Return the names of the entries in a folder, sorted."""
        return sorted(name for name in self.entries if name.startswith(f"{folder}/"))


@contextmanager
def opened(path: Path) -> Iterator[Reader]:
    """Open a backup.

    Raises:
        Damaged: It is truncated, damaged or no backup.
        OSError: It cannot be read.
    """
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(path.open("rb"))
        if not file.seekable():
            raise Damaged(f"{path} is a pipe, and a backup is read twice; copy it to a file; nothing was restored")
        try:
            tar = stack.enter_context(tarfile.open(fileobj=file, mode="r:"))
        except tarfile.TarError as error:
            raise Damaged(f"{path} is truncated or no backup ({error}); nothing was restored") from error
        yield Reader(path, tar)


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
