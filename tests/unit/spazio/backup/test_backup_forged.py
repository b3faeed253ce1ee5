"""A backup that somebody wrote to do harm: no entry leads elsewhere, and no manifest names what it should not."""

import io
import math
import re
import tarfile
from pathlib import Path

import pytest

from schemas.sections.bus import Data
from schemas.settings import Settings
from spazio.backup import archive, restore
from spazio.backup.archive import Damaged
from tests.support.forged_backup import ABOUT, forged


def verify(path: Path) -> None:
    with archive.opened(path) as backup:
        backup.verify()


@pytest.mark.parametrize("name", ["../x", "/etc/x", "credentials/../../x", "a//b", "credentials/a b"])
def test_an_entry_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Damaged, match=r"no backup has|lacks"):
        verify(forged(tmp_path / "b.tar", name))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_an_entry_that_is_no_file_is_refused(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(Damaged, match="lacks"):
        verify(forged(tmp_path / "b.tar", "credentials/x", kind))


STREAM = {"name": "SPAZIO_DEAD", "created": "2026-01-01T00:00:00Z", "config": {}, "state": {"bytes": 0}}


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        ({"entries": [1]}, "damaged manifest"),
        ({"entries": {"a": {"bytes": "many"}}}, "damaged manifest"),
        ({"entries": {"a": {"bytes": math.inf, "sha256": ""}}}, "damaged manifest"),
        ({}, "no usable made_at"),
        (ABOUT | {"made_at": "\x1b[2J"}, "no usable made_at"),
        (ABOUT | {"streams": [{}]}, r"no usable streams\.0\.name"),
        (ABOUT | {"streams": [STREAM | {"state": {"bytes": -1}}]}, r"no usable streams\.0\.state\.bytes"),
        (ABOUT | {"streams": [STREAM | {"state": {"bytes": 0, "messages": "\x1b[2J"}}]}, r"no usable .*\.messages"),
        (ABOUT | {"streams": [STREAM | {"name": "ORDERS"}]}, "'ORDERS', which is not of prefix 'spazio'"),
        (ABOUT | {"streams": [STREAM]}, "lacks "),
        (ABOUT, "lacks settings.toml"),
    ],
)
def test_a_manifest_that_somebody_wrote_is_refused_with_a_sentence_before_anything_is_deleted(
    tmp_path: Path, about: dict[str, object], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = forged(tmp_path / "b.tar", "credentials/x", about=about)
    target = Settings(data=Data(dir=tmp_path / "data"))
    assert restore.run(target, path, force=True) == 1
    shown = capsys.readouterr()
    assert re.search(reason, shown.err)
    assert "\x1b" not in shown.out + shown.err
    assert not target.data.dir.exists()


def test_a_manifest_of_endless_brackets_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "b.tar"
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo(archive.MANIFEST)
        member.size = 1_000_000
        tar.addfile(member, io.BytesIO(b"[" * member.size))
    with pytest.raises(Damaged, match="damaged manifest"):
        verify(path)
