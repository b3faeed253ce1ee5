"""A message that a fold publishes, on its subject, with the index of the message that it came of."""

from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from schemas.messages.base import Message


@dataclass(frozen=True, slots=True)
class Output:
    """A message to publish on a subject, and the index, among those folded, of the message that it came of."""

    subject: str
    message: Message
    index: int = field(compare=False)


def make(subject: str, form: type[Message], fields: dict[str, Any], index: int) -> Output | None:
    """Return the message of these fields; None: they have numbers that no message can hold."""
    try:
        return Output(subject, form.model_validate(fields), index)
    except ValidationError:
        return None
