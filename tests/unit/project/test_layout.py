"""The sizes that ADR 26 promises: folders, files, functions and parameters that fit into one reader's head."""

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("schemas", "bus", "kube", "producers", "processors", "sinks", "spazio", "benchmarks", "tests")


def modules(*packages: str) -> list[Path]:
    return [path for package in packages for path in (ROOT / package).rglob("*.py")]


class Size(NamedTuple):
    """What is counted of a function."""

    name: str
    lines: int
    depth: int
    parameters: int


def size(name: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Size:
    given = {each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)} - {"self", "cls"}
    return Size(name, (node.end_lineno or 0) - node.lineno + 1, depth(node), len(given))


@cache
def functions() -> list[Size]:
    """Return the sizes of all functions; their trees are not kept, which would take most of the time."""
    return [
        size(f"{path.relative_to(ROOT)}:{node.name}", node)
        for path in modules(*PACKAGES)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_a_folder_holds_at_most_twelve_modules() -> None:
    folders = [path.parent for path in modules(*PACKAGES) if path.name != "__init__.py"]
    crowded = {str(folder.relative_to(ROOT)) for folder in folders if folders.count(folder) > 12}
    assert crowded == set()


def test_a_file_has_at_most_300_lines() -> None:
    lines = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in modules(*PACKAGES)}
    assert {name for name, count in lines.items() if count > 300} == set()


@pytest.mark.slow
def test_a_function_has_at_most_50_lines() -> None:
    assert [each.name for each in functions() if each.lines > 50] == []


_BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def depth(node: ast.AST) -> int:
    """Return how deep blocks are nested in a node; an `elif` is as deep as its `if`, a function counts for itself."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _SCOPES):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, depth(child) + (isinstance(child, _BLOCKS) and not is_elif))
    return deepest


@pytest.mark.slow
def test_blocks_are_nested_at_most_four_deep() -> None:
    assert [each.name for each in functions() if each.depth > 4] == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("pass", 0),
        ("if a: pass\nelif b: pass\nelif c:\n  for d in e: pass", 2),
        ("try:\n  with a:\n    while b:\n      if c: pass\nexcept d: pass", 4),
        ("def f():\n  if a: pass", 0),
    ],
)
def test_depth_counts_blocks(body: str, expected: int) -> None:
    assert depth(ast.parse(body)) == expected


@pytest.mark.slow
def test_a_function_has_at_most_8_parameters() -> None:
    assert [each.name for each in functions() if each.parameters > 8] == []


def test_tests_that_need_the_machine_alone_are_where_test_all_looks_for_them() -> None:
    text = (ROOT / "Makefile").read_text()
    marked = set()
    for mark in ("alone", "paired"):
        assert f' -m "slow and {mark}" tests/e2e\n' in text
        files = {path for path in modules("tests") if f"mark.{mark}" in path.read_text() and path != Path(__file__)}
        assert files
        marked |= files
    assert {path.parts[len(ROOT.parts) + 1] for path in marked} == {"e2e"}
