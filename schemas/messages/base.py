"""What all messages share: strict, frozen, finite, versioned.

Each message carries `v`, the contract version. Decoding ignores unknown fields, so that a newer peer may add
fields. It refuses a version above `VERSION`, because known fields may have another meaning there.
"""

from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from schemas.subject import is_node_name

VERSION = 1
RELEASE = "0.1.0"  # of spazio; a test holds it against pyproject.toml
_EXACT = 2**53 - 1


def _node_name(value: str) -> str:
    if not is_node_name(value):
        raise ValueError("a node name has 1 to 253 characters, no white space and no control characters")
    return value


# The pattern is for readers of the schema; the validator decides.
NodeName = Annotated[str, AfterValidator(_node_name), WithJsonSchema({"type": "string", "pattern": r"^\S{1,253}$"})]
Microseconds = Annotated[int, Field(ge=0, le=_EXACT)]
Count = Annotated[int, Field(ge=0, le=_EXACT)]
Ratio = Annotated[float, Field(ge=0, le=1)]
NonNegative = Annotated[float, Field(ge=0)]
# Cores or bytes; far beyond any machine, so that sums of them stay finite.
Amount = Annotated[float, Field(ge=0, le=1e18)]
Text = Annotated[str, Field(min_length=1, max_length=512)]


class MessagePart(BaseModel):
    """A piece of a message. Instances are immutable; numbers are finite; JSON types are not converted."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True)


class Message(MessagePart):
    """Base of every message on the bus. `TITLE` is one line for the generated documents."""

    TITLE: ClassVar[str]
    # First and last of the consecutive fields that a sender repeats from message to message; none: nothing is repeated.
    REPEATED: ClassVar[tuple[str, str] | None] = None

    v: Annotated[int, Field(ge=1, le=VERSION, description="contract version")] = VERSION
