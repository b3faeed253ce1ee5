"""Backups that somebody wrote by hand, with a valid manifest."""

import hashlib
import json
import tarfile
from pathlib import Path

from spazio.backup import archive

ABOUT = {"made_at": "2026-01-01T00:00:00+00:00", "prefix": "spazio", "history": False, "streams": []}


def forged(
    path: Path, name: str, kind: bytes = tarfile.REGTYPE, about: dict[str, object] | None = None, hole: int = 0
) -> Path:
    """Write a backup with an entry of any name and kind, which holds so many bytes that take no place on the disk."""
    body = {"format": 1, "entries": {name: {"bytes": 0, "sha256": hashlib.sha256().hexdigest()}}, **(about or {})}
    manifest = json.dumps({"sha256": archive._digest(body), "body": body}).encode()
    with tarfile.open(path, "w") as tar, (path.with_name("m")).open("wb+") as file:
        member = tarfile.TarInfo(name)
        member.type, member.linkname, member.size = kind, "/etc/passwd", hole
        assert tar.fileobj is not None
        tar.fileobj.write(member.tobuf())
        tar.offset = tar.fileobj.tell() + hole
        tar.fileobj.seek(tar.offset)
        file.write(manifest)
        file.seek(0)
        entry = tarfile.TarInfo(archive.MANIFEST)
        entry.size = len(manifest)
        tar.addfile(entry, file)
    return path
