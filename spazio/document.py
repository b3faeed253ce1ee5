"""Reads YAML that a user names, and bounds its cost."""

from typing import Any, NamedTuple

_DEEPEST = 300  # a pod has 10; PyYAML's time grows with the square, to seconds at 3,000


class Document(NamedTuple):
    """One document of a text.

    Attributes:
        line: Where its content starts, from 1.
        content: None: it is empty.
    """

    line: int
    content: Any


def read_all(text: str) -> list[Document]:
    """Return every document of a text.

    Raises:
        ValueError: It is not YAML, or nested too deeply; the message gives the reason, and the number of the document.
    """
    import yaml  # type: ignore[import-untyped] # the agent works without it

    depth = 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if depth > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} levels of brackets")
    documents = list[Document]()
    try:
        loader = yaml.SafeLoader(text)
        while loader.check_node():
            node = loader.get_node()
            documents.append(Document(node.start_mark.line + 1, loader.construct_document(node)))
    except yaml.YAMLError as error:
        raise ValueError(f"document {len(documents) + 1}: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ValueError(f"document {len(documents) + 1}: nested too deeply") from None
    return documents
