"""The sizes that ADR 26 promises: folders, files, functions and parameters that fit into one reader's head."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = ("schemas", "bus", "kube", "producers", "processors", "sinks", "spazio", "benchmarks")


def modules() -> list[Path]:
    return [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path.relative_to(ROOT)}:{node.name}", node


def test_a_folder_holds_at_most_twelve_modules() -> None:
    folders = [path.parent for path in modules() if path.name != "__init__.py"]
    crowded = {str(folder.relative_to(ROOT)) for folder in folders if folders.count(folder) > 12}
    assert crowded == set()


def test_a_file_has_at_most_300_lines_unless_its_docstring_gives_the_reason() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in modules()}
    long = {name for name, text in texts.items() if text.count("\n") > 300}
    assert {
        name for name in long if "is long because" not in (ast.get_docstring(ast.parse(texts[name])) or "")
    } == set()


def test_a_function_has_at_most_50_lines() -> None:
    assert [name for name, node in functions() if (node.end_lineno or 0) - node.lineno >= 50] == []


def test_a_function_has_at_most_8_parameters() -> None:
    counted = {
        name: [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        for name, node in functions()
    }
    assert [
        name for name, given in counted.items() if len([arg for arg in given if arg not in ("self", "cls")]) > 8
    ] == []
