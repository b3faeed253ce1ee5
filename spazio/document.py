"""Reads YAML that a user names, and bounds its cost."""

from typing import Any

_DEEPEST = 300  # a pod has 10; PyYAML's time grows with the square, to seconds at 3,000


def read_all(text: str) -> list[Any]:
    """Return every document of a text.

    Raises:
        ValueError: It is not YAML, or nested too deeply; the message gives the reason.
    """
    import yaml  # type: ignore[import-untyped] # the agent works without it

    depth = 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if depth > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} levels of brackets")
    try:
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
