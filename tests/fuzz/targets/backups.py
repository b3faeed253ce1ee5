"""Backups: a tar of any bytes, and a manifest that somebody wrote, with the digest that belongs to it."""

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spazio.backup import about, archive, save
from spazio.backup.archive import Damaged
from tests.fuzz.session import Run, Target
from tests.fuzz.targets import choice

_STREAM = {
    "name": "SPAZIO_DEAD",
    "created": "2026-01-01T00:00:00Z",
    "config": {"name": "SPAZIO_DEAD", "subjects": ["spazio.dead.>"]},
    "state": {"bytes": 0, "messages": 0},
}
_ENTRIES = (save.SETTINGS, save.entry("SPAZIO_DEAD"))
_BODY: dict[str, Any] = {
    "format": archive.FORMAT,
    "made_at": "2026-01-01T00:00:00+00:00",
    "prefix": "spazio",
    "history": False,
    "streams": [_STREAM],
    "entries": {name: {"bytes": 0, "sha256": hashlib.sha256().hexdigest()} for name in _ENTRIES},
}
_WORDS = (
    b"Infinity",
    b"NaN",
    b"1e999",
    b"-1",
    b"null",
    b'"entries": {',
    b"[" * 900,
    b"\0" * 512,
    b"ustar\x0000",
    b"\\u001b",
)


def _manifest(body: object) -> bytes:
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return json.dumps({"sha256": digest, "body": body}).encode()


def _tar(manifest: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in (*((each, b"") for each in _ENTRIES), (archive.MANIFEST, manifest)):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return file.getvalue()


@contextmanager
def _opened() -> Iterator[Run]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "backup.tar"

        def raw(data: bytes) -> None:
            path.write_bytes(data)
            with archive.opened(path) as backup:
                about.check(backup)
                backup.verify()

        def body(data: bytes) -> None:
            try:
                manifest = _manifest(json.loads(data))
            except (ValueError, RecursionError):
                return
            raw(_tar(manifest))

        readers: choice.Readers = {"tar": raw, "body": body}
        with choice.opened(readers)() as once:
            yield once


def target() -> Target:
    """Return the target; the first byte says whether the rest is a tar or the body of a manifest."""
    seeds = [b"\0" + _tar(_manifest(_BODY)), b"\1" + json.dumps(_BODY).encode()]
    return Target("backups", seeds, _opened, (Damaged,), _WORDS)
