"""What the pages let a reader type exists: commands, options, values, files, programs and objects of the cluster."""

import functools
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from tests.support import command_line
from tests.support.project import documents
from tests.support.project.documents import CURRENT, ROOT

BY_PAGE = pytest.mark.parametrize("page", CURRENT, ids=documents.name)
# Options of other programs that sentences name.
FOREIGN = {"--js-domain", "--reuse-values", "--set", "--status-taint"}
PLACEHOLDER = re.compile(r"[A-Z]{3,}|[<>…*]")
# Benchmarks and programs of tests have options, too.
PROGRAMS = [path.read_text() for folder in ("benchmarks", "tests/e2e") for path in (ROOT / folder).rglob("*.py")]
# Pages with a test of their own, which runs all of their commands.
TUTORIALS = {
    "docs/tutorial.md": "tests/e2e/project/test_tutorial.py",
    "docs/tutorial-kubernetes.md": "tests/e2e/kubernetes/test_tutorial_cluster.py",
}
# Of other blocks the comment above says who runs them: tests/e2e/project/test_guides.py beside a `spazio up`, or
# tests/e2e/kubernetes/test_guides_cluster.py in a cluster. Where no test can, it names one that does the same.
RUN = {"run", "run in a cluster"}
OURS = re.compile(
    r"(?:\w+=\S* |sudo )*(?:\.venv/bin/)?(?:spazio|kubectl|helm|docker|make|deploy/|curl|systemctl)\b", re.MULTILINE
)


def code(page: Path) -> str:
    """Return all that a page shows as code, one piece a line or more."""
    text = page.read_text()
    return "\n".join([*(block.text for block in documents.blocks(text)), *documents.mentions(text)])


@BY_PAGE
def test_every_command_that_a_page_types_would_be_understood(page: Path) -> None:
    refused = {}
    for arguments in documents.typed(page.read_text()):
        try:
            command_line.parse(arguments)
        except command_line.Wrong as error:
            refused[" ".join(arguments)] = str(error)
    assert refused == {}


@BY_PAGE
def test_every_command_that_a_sentence_names_exists_with_its_options(page: Path) -> None:
    refused = {}
    for arguments in documents.mentioned(page.read_text()):
        try:
            command_line.parse([word for word in arguments if not PLACEHOLDER.search(word)], partly=True)
        except command_line.Wrong as error:
            refused[" ".join(arguments)] = str(error)
    assert refused == {}


@BY_PAGE
def test_every_option_that_a_sentence_names_is_one_of_some_command(page: Path) -> None:
    named = {
        match[0] for mention in documents.mentions(page.read_text()) if (match := re.match(r"--[a-z][\w-]*", mention))
    }
    own = {option for option in named if any(f'"{option}"' in program for program in PROGRAMS)}
    assert named - own - command_line.options() - FOREIGN == set()


@BY_PAGE
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    folders, packages = r"deploy|docs|tests|benchmarks|\.ci", "schemas|bus|kube|producers|processors|sinks|spazio"
    form = rf"(?<![\w./$-])((?:{folders})/[\w./@-]*\w|(?:{packages})/[\w/]+\.py)(?![\w*<{{])"
    paths = re.findall(form, code(page))
    assert [path for path in paths if not (ROOT / path).exists()] == []


@BY_PAGE
def test_every_program_that_a_page_starts_is_there(page: Path) -> None:
    text = code(page)
    modules = re.findall(r"python -m ((?:benchmarks|tests)[\w.]*\w)", text)
    places = [ROOT / name.replace(".", "/") for name in modules]
    assert [
        target for target in places if not (target.with_suffix(".py").exists() or (target / "__main__.py").exists())
    ] == []
    targets = (ROOT / "Makefile").read_text().partition(".PHONY:")[2].split("\n")[0].split()
    assert set(re.findall(r"(?:^|&& )make ([a-z][a-z-]+)", text, re.MULTILINE)) <= {*targets}


CLUSTER = {
    name: shutil.which(name) or shutil.which(name, path=ROOT / ".tools" / "kube")
    for name in ("kubectl", "helm", "kwokctl")
}


def of_the_cluster() -> list[tuple[str, ...]]:
    """Return all commands of pages for a cluster whose programs are here; of those that differ in values only, one."""
    texts = [page.read_text() for page in CURRENT]
    scripts = [script for text in texts for script in documents.scripts(text)]
    scripts += [mention for text in texts for mention in documents.mentions(text) if mention.startswith((*CLUSTER,))]
    typed = [words for script in scripts for words in documents.commands(script) if CLUSTER.get(words[0])]
    return list({tuple(re.sub(r"=.*", "", word) for word in words): tuple(words) for words in typed}.values())


@pytest.mark.cases
@pytest.mark.parametrize("words", of_the_cluster(), ids=" ".join)
def test_every_command_for_a_cluster_is_understood_by_its_program(words: tuple[str, ...], tmp_path: Path) -> None:
    if words[1:2] == ("spazio",):
        return  # the plugin, whose options another test knows
    program = CLUSTER[words[0]]
    assert program
    # The options before `--help` are read all the same; what follows `--` is for another program.
    own = words[1 : words.index("--")] if "--" in words else words[1:]
    nowhere = {"KUBECONFIG": str(tmp_path / "none"), "HOME": str(tmp_path)}
    answer = subprocess.run(
        [program, *own, "--help"], env=nowhere, capture_output=True, text=True, check=False, timeout=30
    )
    assert answer.returncode == 0, answer.stderr


@functools.cache
def objects() -> set[tuple[str, str, str]]:
    """Return namespace, kind and name of every object of the manifests."""
    result = set()
    for path in (ROOT / "deploy" / "kubernetes").rglob("*.yaml"):
        for thing in yaml.safe_load_all(path.read_text()):
            metadata = (thing or {}).get("metadata", {})
            result.add((metadata.get("namespace", ""), (thing or {}).get("kind", "").lower(), metadata.get("name", "")))
    return result


@BY_PAGE
def test_every_object_of_the_cluster_that_a_page_names_is_in_the_manifests(page: Path) -> None:
    kinds = "deployment|daemonset|statefulset|service"
    named = re.findall(rf"kubectl -n (\S+) [^\n]*?\b({kinds})[/ ](spazio-\w+)", code(page))
    assert set(named) - objects() == set()


@BY_PAGE
def test_what_a_server_reads_again_every_server_reads_again(page: Path) -> None:
    assert re.findall(r"exec \S*nats-\d.* --signal reload", code(page)) == []


@BY_PAGE
def test_no_page_upgrades_with_the_values_of_an_old_chart(page: Path) -> None:
    assert "--reuse-values" not in "\n".join(documents.scripts(page.read_text()))


@BY_PAGE
def test_every_value_of_the_chart_that_a_page_sets_is_in_the_chart(page: Path) -> None:
    values = yaml.safe_load((ROOT / "deploy" / "helm" / "spazio" / "values.yaml").read_text())
    for path in re.findall(r"--set '?([\w.]+)=", code(page)):
        target = values
        for key in path.split("."):
            assert key in target, path
            target = target[key]


def test_commands_are_found_in_blocks_and_in_sentences() -> None:
    typed = [arguments for page in CURRENT for arguments in documents.typed(page.read_text())]
    mentioned = [arguments for page in CURRENT for arguments in documents.mentioned(page.read_text())]
    assert len(typed) > 40
    assert len(mentioned) > 100
    assert ["top", "--once"] in typed
    assert ["doctor", "--flow"] in mentioned


@pytest.mark.parametrize("wrong", ["tpo", "top --onec", "sink histroy", "up --nodes many", "agent --onec", "explain"])
def test_a_command_that_is_wrong_is_noticed(wrong: str) -> None:
    with pytest.raises(command_line.Wrong):
        command_line.parse(wrong.split())


@pytest.mark.parametrize(
    "page",
    [page for page in CURRENT if documents.name(page) not in TUTORIALS],
    ids=documents.name,
)
def test_every_block_of_commands_is_run_by_a_test_or_names_one_that_does_the_same(page: Path) -> None:
    blocks = documents.blocks(page.read_text())
    typed = [block for block in blocks if block.language in ("sh", "console")]
    assert [block.text for block in typed if block.mark not in RUN and not same_elsewhere(block.mark)] == []
    assert [block.text for block in blocks if not block.language and OURS.match(block.text)] == [], "fence it as sh"


def same_elsewhere(mark: str) -> bool:
    """Tell whether a mark says why a block is not run, and names only files that there are, with a test among them."""
    paths = re.findall(r"[\w./-]+\.(?:py|md)\b", mark)
    return (
        mark.startswith("not run: ")
        and all((ROOT / path).exists() for path in paths)
        and any(path.startswith("tests/") for path in paths)
    )


@pytest.mark.parametrize("mark", ["", "ran", "not run: too slow", "not run: tests/none.py", "not run: README.md"])
def test_a_block_without_a_test_is_noticed(mark: str) -> None:
    assert mark not in RUN
    assert not same_elsewhere(mark)


def test_every_tutorial_has_a_test_that_reads_it() -> None:
    for page, test in TUTORIALS.items():
        assert Path(page).name in (ROOT / test).read_text()
        assert f"`{test}`" in (ROOT / page).read_text()
    pages = {documents.name(page) for page in CURRENT}
    assert {page for page in pages if page.startswith("docs/tutorial")} == TUTORIALS.keys()
