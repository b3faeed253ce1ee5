"""The pages of the documentation, and what they say in code: blocks, commands, and words between backticks."""

import re
import shlex
import subprocess
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()
]  # fmt: skip
# Pages about spazio as it is; decisions and changes tell of what was.
CURRENT = [page for page in PAGES if page.name != "CHANGELOG.md" and page.parent.name != "adr"]

_BLOCK = re.compile(
    r"^(?: *<!-- (?P<mark>[^\n>]+) -->\n\n?)?"
    r"(?:(?P<indent> *)```(?P<language>\w*)\n(?P<fenced>.*?)^(?P=indent)```$"
    r"|(?<=\n\n)(?P<indented>(?: {4}[^\n]*\n|\n(?= {4}))+))",
    re.MULTILINE | re.DOTALL,
)
_SHELL = ("sh", "console", "")
_OPERATORS = ";|&<>\n"
_BEFORE = re.compile(r"sudo|exec|kubectl|\w+=.*")


class Block(NamedTuple):
    """A block of code.

    Attributes:
        language: Its language; empty: it has none, as a block that is indented only.
        text: Its lines, without their common indentation.
        mark: What the comment above it says; empty: there is none.
    """

    language: str
    text: str
    mark: str


def name(page: Path) -> str:
    """Return the path of a page within the repository."""
    return str(page.relative_to(ROOT))


def blocks(text: str) -> list[Block]:
    """Return the blocks of a page in their order.

    >>> blocks("See:\\n\\n<!-- run -->\\n\\n```sh\\nspazio top\\n```\\n\\n    make\\n")
    [Block(language='sh', text='spazio top\\n', mark='run'), Block(language='', text='make\\n', mark='')]
    """
    return [
        Block(match["language"] or "", textwrap.dedent(match["fenced"] or match["indented"] or ""), match["mark"] or "")
        for match in _BLOCK.finditer(text)
    ]


def mentions(text: str) -> list[str]:
    """Return what stands between backticks outside of blocks; a line break in it counts as a space.

    >>> mentions("`spazio\\ntop` shows it:\\n\\n```sh\\nspazio `x`\\n```\\n")
    ['spazio top']
    """
    return [" ".join(match.split()) for match in re.findall(r"`([^`]+)`", _BLOCK.sub("", text))]


def scripts(text: str) -> list[str]:
    """Return what a page has to type into a shell; of a session, what stands behind its prompts."""
    return [
        "\n".join(re.findall(r"^\$ (.+)$", block.text, re.MULTILINE)) if block.language == "console" else block.text
        for block in blocks(text)
        if block.language in _SHELL
    ]


def commands(script: str) -> list[list[str]]:
    """Return the words of each command of a script, up to where it redirects something.

    >>> commands("A=1 spazio top --once | head  # all\\nsudo spazio sql 'SELECT 1' > rows && ls")
    [['A=1', 'spazio', 'top', '--once'], ['head'], ['sudo', 'spazio', 'sql', 'SELECT 1'], ['ls']]

    Raises:
        ValueError: A quotation has no end.
    """
    text = re.sub(r"<<'?(\w+)'?([^\n]*)\n.*?^\1$", r"\2", script, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"(^|\s)#[^\n]*", r"\1", text.replace("\\\n", " "), flags=re.MULTILINE)
    reader = shlex.shlex(text, posix=True, punctuation_chars=_OPERATORS)
    reader.whitespace, reader.commenters, reader.whitespace_split = " \t", "", True
    result: list[list[str]] = [[]]
    redirected = False
    for word in reader:
        if word and not set(word) - set(_OPERATORS):
            redirected = bool({"<", ">"} & set(word))
            result += [] if redirected else [[]]
        elif not redirected:
            result[-1].append(word)
    return [words for words in result if words]


def typed(text: str) -> list[list[str]]:
    """Return the arguments of every `spazio` that a page has to be typed, in a block."""
    return _arguments(words for script in scripts(text) for words in commands(script))


def mentioned(text: str) -> list[list[str]]:
    """Return the arguments of every `spazio` that a page names in a sentence; it may lack some."""
    spoken = (mention for mention in mentions(text) if re.search(r"\bspazio ", mention))
    return _arguments(words for mention in spoken for words in commands(mention))


def _arguments(listed: Iterable[Sequence[str]]) -> list[list[str]]:
    result = []
    for words in listed:
        start = next((start for start, word in enumerate(words) if not _BEFORE.fullmatch(word)), len(words))
        if start < len(words) and words[start] in ("spazio", ".venv/bin/spazio"):
            result.append(list(words[start + 1 :]))
    return result
