"""The field's words: names that once hid what things are do not return, nor phrases that a reader has to translate."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("schemas", "bus", "kube", "producers", "processors", "sinks", "spazio", "benchmarks", "tests")
# A setting and the owner references of Kubernetes have public names; a function may place pods, which is a verb.
_NAMES = {
    "outlook", "class_room", "kick", "board", "book", "judge", "placer", "telling", "said", "remembered", "recall",
    "world", "found", "known", "one", "Owner", "Crew", "Part", "Heritage", "Lesson", "Roll", "Unrest", "Words", "Look",
    "Told",
}  # fmt: skip
_VARIABLES = _NAMES | {"place"}
_PUBLIC = {("schemas/sections/placement.py", "kick"), ("kube/owner.py", "Owner")}
# As what a page or a comment says; "told" among the names of arrays in checkpoints stays, since old ones have it.
_PHRASE = re.compile(
    r"(?<![a-z\"'._])(said|told|whoever|anew|mends?|mended|mending|(?:is|are) owed to|is deaf)(?![a-z\"'.]*[\"'])",
    re.IGNORECASE,
)
_EVENT = re.compile(r"extender\.unheld|lease\.unkept|crew\.unbalanced")
_PAGES = ("*.py", "*.md", "*.yaml", "*.yml", "*.js", "*.html", "*.toml", "Makefile")


def texts() -> Iterator[tuple[str, str]]:
    """Yield name and text of each file that people wrote, but this one."""
    folders = (*PACKAGES, "docs", "deploy")
    paths = [path for folder in folders for pattern in _PAGES for path in (ROOT / folder).rglob(pattern)]
    for path in [*paths, *(path for pattern in _PAGES for path in ROOT.glob(pattern))]:
        if path != Path(__file__):
            yield str(path.relative_to(ROOT)), path.read_text()


def names(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module defines, without underscores before them; a variable's with `=` behind."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name.strip("_")
        elif isinstance(node, ast.arg):
            yield f"{node.arg.strip('_')}="
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield f"{node.id.strip('_')}="
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield f"{node.attr.strip('_')}="


def test_extras_are_installed_from_a_checkout() -> None:
    """No index of packages has spazio, so anybody can register a package of that name there."""
    assert [name for name, text in texts() if "spazio[" in text and name != "pyproject.toml"] == []


@pytest.mark.slow
def test_names_are_the_fields_words() -> None:
    unclear = {
        (name, word.rstrip("="))
        for name, text in texts()
        if name.endswith(".py")
        for word in {*names(ast.parse(text))}
        if word.rstrip("=") in (_VARIABLES if word.endswith("=") else _NAMES)
    }
    assert unclear == _PUBLIC


@pytest.mark.slow
def test_phrases_are_plain() -> None:
    assert {(name, match[0]) for name, text in texts() for match in _PHRASE.finditer(text)} == set()


def test_events_are_named_by_what_failed() -> None:
    pages = (text for name, text in texts() if name != "CHANGELOG.md")  # it names what was renamed
    assert [match[0] for text in pages for match in _EVENT.finditer(text)] == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def _found(one): pass", {"found", "one="}),
        ("class Crew:\n  said: int = 0", {"Crew", "said="}),
        ("self.known, (place, _) = 1, (2, 3)", {"known=", "place=", "="}),
        ("known.place(said)", set()),
    ],
)
def test_what_defines_a_name_is_seen(source: str, expected: set[str]) -> None:
    assert {*names(ast.parse(source))} == expected


@pytest.mark.parametrize(
    ("text", "count"),
    [("It is said that whoever reads is told.", 3), ('"told": state.room', 0), ("node.report.told_us", 0)],
)
def test_phrases_are_seen_in_sentences(text: str, count: int) -> None:
    assert len(_PHRASE.findall(text)) == count


_THINGS = "CPU|day|decision|fault|file|histogram|key|message|node|part|pod|replica|role|row|seed|service|step"
_COUNTED = re.compile(rf"\{{[^{{}}]*\}} (?:{_THINGS})s\b")
# Limits and numbers that are never one: a comparison, a constant, a fraction.
_SEVERAL = {
    "{len(placements)} pods", "{each.replicas} replicas", "{nodes} nodes", "{pods} pods", "{step.disturbed:.1f} CPUs",
    "{nodes.length} nodes", "{DAYS} days", "{amount(prediction.peak_cpu, 2)} CPUs",
}  # fmt: skip


def test_one_of_a_thing_is_called_one() -> None:
    paths = [*(ROOT / "spazio").rglob("*.py"), *(ROOT / "sinks/dashboard/static").rglob("*.js")]
    texts = (path.read_text() for path in paths if "vendor" not in path.parts)
    assert {match[0] for text in texts for match in _COUNTED.finditer(text)} <= _SEVERAL, "use `count.of`, or `counted`"
