"""Every link of every page leads to a file that there is, and to a heading of it."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.project import documents
from tests.support.project.documents import PAGES, ROOT


def text_of(page: Path) -> str:
    """Return a page without its code."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as forges make them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=documents.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if re.match(r"https?:|mailto:", target):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=documents.name)
def test_a_page_shows_json_only_as_code(page: Path) -> None:
    assert [line[:60] for line in text_of(page).splitlines() if line.startswith(('{"', '[{"'))] == []


def site() -> Any:
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / ".ci" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_site_shows_every_page_at_its_place_and_its_menu_names_only_pages(tmp_path: Path) -> None:
    assert site().stage(tmp_path) > len(PAGES)
    for page in PAGES:
        assert (tmp_path / page.relative_to(ROOT)).read_text() == page.read_text()
    menu = re.findall(r": (\S+\.md)$", (ROOT / ".ci" / "mkdocs.yml").read_text(), re.MULTILINE)
    assert [name for name in menu if not (tmp_path / name).is_file()] == []
    guides = {str(page.relative_to(ROOT)) for page in PAGES if page.parent == ROOT / "docs"}
    assert guides <= set(menu)


def test_pages_are_found() -> None:
    assert {ROOT / "README.md", ROOT / "docs" / "runbook.md", ROOT / "docs" / "tutorial.md"} <= set(PAGES)
