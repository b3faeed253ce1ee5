"""What every section is made of: the base class, and the types of values that several sections share."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict


class Section(BaseModel):
    """Base of the sections: frozen, and an unknown field is a fault."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _named(value: object) -> object:
    if value == "":  # to `Path` it is the current folder
        raise ValueError("is empty; name a folder or file, or leave it out")
    return value


Seconds = Annotated[float, Field(gt=0, le=86_400 * 366)]
Port = Annotated[int, Field(ge=0, le=65_535)]
Bytes = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Location = Annotated[Path, BeforeValidator(_named)]
# Absolute, because `up` writes it where commands in other folders read it.
Folder = Annotated[Location, AfterValidator(Path.absolute)]
# Empty text, from whichever source, means that none is given.
_Given = BeforeValidator(lambda value: None if value == "" else value)
OptionalLocation = Annotated[Location | None, _Given]
OptionalFolder = Annotated[Folder | None, _Given]
Commas = BeforeValidator(lambda value: value.split(",") if isinstance(value, str) else value)
# Marks a setting that may change while services run; `schemas.live` reads it.
RELOAD: JsonDict = {"reload": True}
