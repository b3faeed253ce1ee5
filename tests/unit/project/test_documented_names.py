"""Settings, defaults, variables, log events and labels that the pages name are those of the code."""

import re
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from schemas import settings as all_settings
from schemas.channel import CHANNELS
from schemas.settings import Settings
from tests.support.project import documents
from tests.support.project.documents import CURRENT, ROOT

BY_PAGE = pytest.mark.parametrize("page", CURRENT, ids=documents.name)
CODE = "".join(
    path.read_text()
    for package in ("schemas", "bus", "kube", "producers", "processors", "sinks", "spazio")
    for path in (ROOT / package).rglob("*.py")
)
FIELDS = {(section, field) for section, field, _ in all_settings.options()}
FLAGS = {f"--{all_settings.option_name(*option).replace('_', '-')}": option for option in FIELDS}
VARIABLES = {f"{all_settings.ENV}{all_settings.option_name(*option).upper()}" for option in FIELDS} | {"SPAZIO_CONFIG"}
DEPLOYED = [
    path.read_text()
    for path in (ROOT / "docker-compose.yml", *(ROOT / "deploy").rglob("*"))
    if path.is_file() and path.suffix != ".png"
]
# What has a dot and is a file.
FILES = "conf|creds|crt|csv|duckdb|html|json|key|log|md|parquet|partial|png|py|sh|tar|toml|txt|yaml|yml"
SUBJECTS = {f"spazio.{row.kind}" for row in CHANNELS} | {"spazio.flow"}
CHART = {
    f"{section}.{key}"
    for section, values in yaml.safe_load((ROOT / "deploy" / "helm" / "spazio" / "values.yaml").read_text()).items()
    for key in (values if isinstance(values, dict) else ())
}


def dotted(page: Path) -> set[str]:
    """Return all pairs of words with a dot between, which are no files, that a page has between backticks."""
    mentions = {*documents.mentions(page.read_text())}
    return {each for each in mentions if re.fullmatch(rf"[a-z_]+\.(?!(?:{FILES})$)[a-z_0-9]+", each)}


@BY_PAGE
def test_every_setting_event_and_label_that_a_page_names_exists(page: Path) -> None:
    if page.name == "CONTRIBUTING.md":
        return  # it names modules and their functions in the same form
    documented = {".".join(option) for option in FIELDS} | SUBJECTS | CHART
    others = dotted(page) - documented
    assert {word for word in others if f'"{word}"' not in CODE and not is_control_file(word)} == set()


def is_control_file(word: str) -> bool:
    """Tell whether a word is a file of a control group or a part of a path of the kernel, such as `cpu.max`."""
    return word.partition(".")[0] in ("cpu", "memory")


@BY_PAGE
def test_a_number_in_brackets_behind_a_setting_is_its_default(page: Path) -> None:
    text = re.sub(r"\s+", " ", page.read_text())
    for name, stated in re.findall(r"`([a-z_]+\.[a-z_]+|--[a-z0-9-]+)` \((\d+(?:\.\d+)?)\)", text):
        section, field = FLAGS.get(name) or name.split(".")
        value = getattr(getattr(Settings(), section), field)
        # The policy leaves the slowdown to the estimate, unless it is set.
        assert (Settings().slowdown if (value, field) == (None, "slowdown") else value) == float(stated), name


@BY_PAGE
def test_every_variable_that_a_page_names_is_read_somewhere(page: Path) -> None:
    named = set(re.findall(r"\bSPAZIO_[A-Z0-9_]*[A-Z0-9]\b", page.read_text()))
    others = {name for name in named - VARIABLES if not any(name in text for text in DEPLOYED)}
    # Streams and buckets have such names, too, and the code puts them together.
    assert {name for name in others if f'"{name.removeprefix("SPAZIO_")}"' not in CODE} == set()


def test_every_label_and_annotation_of_the_code_is_on_the_page_of_labels() -> None:
    keys = {*re.findall(r'"(spazio\.(?:io/)?[a-z][a-z-]*|[a-z]+\.spazio\.io/[a-z]+)"', CODE)} - SUBJECTS
    page = (ROOT / "docs" / "labels.md").read_text()
    metadata = {"spazio.created", "spazio.partitions"}  # of streams
    assert {key for key in keys - metadata if f"`{key}`" not in page} == set()
    assert {"spazio.class", "spazio.io/full", "kick.spazio.io/at"} <= keys


def test_names_are_found() -> None:
    names = {word for page in CURRENT for word in dotted(page)}
    assert {"http.hung_seconds", "output.full_seconds", "lease.contended", "spazio.market", "spazio.class"} <= names
