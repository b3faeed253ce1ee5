"""What a manifest says beside the entries, checked before anything is made or deleted by it.

A checksum shows damage. A file that somebody wrote by hand has valid ones, and could name the streams of others.
"""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, NonNegativeInt, ValidationError

from spazio.backup.archive import Damaged, Reader
from spazio.backup.save import SETTINGS, belongs, entry


class _Config(BaseModel):
    max_bytes: int = -1


class _State(BaseModel):
    bytes: NonNegativeInt
    messages: NonNegativeInt = 0


class _Stream(BaseModel, extra="forbid"):
    name: str
    created: datetime
    config: _Config
    state: _State


class _About(BaseModel):
    made_at: datetime
    prefix: str
    history: bool
    streams: list[_Stream]


def check(backup: Reader) -> None:
    """Compare what the manifest says with what it has.

    Raises:
        Damaged: It lacks something, names a stream of another prefix, or has no entry for a stream.
    """
    content: dict[str, Any] = backup.about
    try:
        about = _About.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise Damaged(f"the manifest of {backup.path} has no usable {where}; nothing was restored") from error
    for each in about.streams:
        if not belongs(about.prefix, each.name):
            raise Damaged(
                f"{backup.path} has a stream {each.name!r}, which is not of prefix {about.prefix!r}; "
                "nothing was restored"
            )
    lacking = {SETTINGS, *(entry(each.name) for each in about.streams)} - backup.entries.keys()
    if lacking:
        raise Damaged(f"{backup.path} lacks {min(lacking)}; nothing was restored")
