"""The statements of the documentation and of the dashboard, on a recording."""

import contextlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from processors.partition.partition import Partition
from schemas import codec
from schemas.messages.base import Message
from schemas.settings import load
from tests.support import command_line
from tests.support.extender.placement import decision, report
from tests.support.history import ask, record, store
from tests.support.processors import telemetry
from tests.support.processors.predicted import prediction
from tests.support.processors.telemetry import NAMES
from tests.support.project import documents

pytestmark = pytest.mark.slow

INPUTS_US = telemetry.START * 1_000_000

SAVED = json.loads((documents.ROOT / "sinks" / "dashboard" / "static" / "sql" / "questions.json").read_text())
RECENT = [saved["sql"] for saved in SAVED if saved["group"] == "Recent"]


def documented(text: str) -> Iterator[dict[str, str]]:
    """Return the questions of a page: the heading above each, its first sentence, and the statement."""
    group = before = ""
    for block in re.split(r"\n\n(?=\S)", text):
        if block.startswith("## "):
            group = block[3:]
        elif block.startswith("```sql"):
            statement = block.removeprefix("```sql\n").partition("\n```")[0]
            yield {"group": group, "question": before.replace("\n", " ").partition("?")[0] + "?", "sql": statement}
        before = block


DOCUMENTED = list(documented((documents.ROOT / "docs" / "sql.md").read_text()))
QUESTIONS = [each["sql"] for each in DOCUMENTED]


def elsewhere() -> Iterator[str]:
    """Yield the statements of all other pages: their blocks of SQL, and what their commands ask."""
    for page in documents.CURRENT:
        text = page.read_text()
        if page.name != "sql.md":
            yield from (block.text for block in documents.blocks(text) if block.language == "sql")
        for arguments in (*documents.typed(text), *documents.mentioned(text)):
            with contextlib.suppress(command_line.Wrong):  # another test names it
                values = command_line.parse(arguments, partly=True)
                yield from (str(values[name]) for name in ("statement", "query") if values.get(name))


ELSEWHERE = sorted(statement for statement in {*elsewhere()} if "…" not in statement)

# The recording has no full machine, no quota, no pod that was refused and no prediction that has settled.
MAY_BE_EMPTY = ("saturation_episodes", "pod IS NULL", "by_quota", "throttled", "outcome <>", "'shop/web'")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording with all that processors made of it, a decision and a prediction."""
    inputs = telemetry.recording(seconds=40)
    outputs, _ = Partition(load({}, environ={}), 0).fold(inputs)
    made: list[tuple[str, Message]] = [
        (NAMES.node("prediction", "node-1"), prediction(node="node-1", at_us=INPUTS_US)),
        ("spazio.decision.shop.web", decision(INPUTS_US)),
        ("spazio.decision.shop.late", decision(INPUTS_US).model_copy(update={"pod": "late", "outcome": "rejected"})),
    ]
    results = [(output.subject, codec.encode(output.message)) for output in outputs]
    rest = [(subject, codec.encode(message)) for subject, message in made]
    return store(tmp_path_factory.mktemp("history"), [*inputs, *results, *rest])


@pytest.mark.cases
@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_of_the_documentation_has_an_answer(recorded: Path, question: str) -> None:
    rows = ask(recorded, question)
    assert rows or any(word in question for word in MAY_BE_EMPTY)


@pytest.mark.parametrize("statement", ELSEWHERE)
def test_every_statement_of_another_page_can_be_asked(recorded: Path, statement: str) -> None:
    ask(recorded, statement)


@pytest.mark.parametrize("question", RECENT)
def test_every_question_that_the_dashboard_offers_can_be_asked(recorded: Path, question: str) -> None:
    ask(recorded, question)


def test_the_saved_question_about_the_cluster_adds_up_nodes_whose_seq_differs(tmp_path: Path) -> None:
    minute_us = (round(time.time()) // 60 - 2) * 60_000_000
    rows = [
        report(node, minute_us + second * 1_000_000, available, lower=lower).model_copy(update={"seq": seq})
        for node, second, seq, available, lower in (
            ("a", 1, 5, 3.5, 2.0),
            ("a", 9, 6, 4.5, 0.5),
            ("b", 2, 900, 2.5, 1.5),
        )
    ]
    record(tmp_path, [(NAMES.part(0, "availability", row.node), row) for row in rows])
    (statement,) = [text for text in RECENT if "cluster_room" in text]
    ((minute, *numbers),) = ask(tmp_path, statement)
    assert (minute.timestamp() * 1e6, numbers) == (minute_us, [2, 6.0, 2.0, 1])


def test_the_share_in_churn_is_one_of_time_although_reports_come_more_often_in_churn(tmp_path: Path) -> None:
    """Four seconds of 17: a report holds until the next one, and for five seconds at most."""
    seconds = [(0, True), (1, True), (2, True), (3, True), (4, False), (7, False), (67, False)]
    rows = [
        report("a", INPUTS_US + second * 1_000_000, 3.0).model_copy(update={"churn": churn})
        for second, churn in seconds
    ]
    record(tmp_path, [(NAMES.part(0, "availability", row.node), row) for row in rows])
    (statement,) = [text for text in QUESTIONS if "churn::" in text]
    assert ask(tmp_path, statement) == [("a", pytest.approx(4 / 17))]


def test_the_dashboard_offers_the_twenty_questions_of_the_documentation() -> None:
    assert len(QUESTIONS) >= 20
    assert [saved for saved in SAVED if saved["group"] != "Recent"] == DOCUMENTED
