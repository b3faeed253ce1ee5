"""What the README and the pages behind it list is what there is."""

import re
from pathlib import Path

import typer

from processors.estimation import slowdown
from schemas.channel import CHANNELS, stores
from schemas.sections.prediction import PEAK_MODELS
from schemas.settings import Settings
from schemas.subject import Names
from sinks.history.table import TABLES
from sinks.history.tables.rolled import ROLLED
from spazio import cli, sink

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
LONGEST = 120


def first_column(page: str, heading: str) -> list[str]:
    text = (DOCS / page).read_text()
    table = text[text.index(f"| {heading} |") :].split("\n\n")[0]
    return [row.split("|")[1].strip() for row in table.splitlines()[2:]]


def test_the_commands_are_those_of_the_command_line() -> None:
    listed = {re.sub(r"[`]|spazio ", "", cell) for cell in first_column("commands.md", "command")}
    groups = {f"sink {command.callback.__name__}" for command in sink.app.registered_commands if command.callback}
    groups |= {f"histograms {command.name}" for command in cli.histograms_app.registered_commands}
    commands = {command.callback.__name__ for command in cli.app.registered_commands if command.callback}
    assert listed == commands | groups
    assert isinstance(cli.app, typer.Typer)


def test_the_tables_are_those_of_the_history() -> None:
    assert [cell.strip("`") for cell in first_column("history.md", "table")] == [table.name for table in TABLES]


def test_the_roll_ups_are_those_of_the_history() -> None:
    assert [cell.strip("`") for cell in first_column("history.md", "roll-up")] == [rolled.name for rolled in ROLLED]


def test_the_subjects_are_those_of_the_contract() -> None:
    listed = re.findall(r"`([^`]+)`", " ".join(first_column("bus.md", "subject")))
    streamed = [row for row in CHANNELS if not row.store.bucket]
    assert sorted(listed) == sorted(re.sub(r"{(\w+)}", r"<\1>", row.address(Names())) for row in streamed)


def test_every_bucket_of_the_contract_is_named() -> None:
    buckets = [store for store in stores() if store.bucket]
    pages = "".join((DOCS / page).read_text() for page in ("bus.md", "containers.md", "placement.md"))
    assert [store.name for store in buckets if f"`SPAZIO_{store.name}`" not in pages] == []
    assert buckets


def test_the_readme_is_what_a_newcomer_needs() -> None:
    assert (ROOT / "README.md").read_text().count("\n") <= LONGEST


def test_what_the_readme_claims_of_simulated_clusters_is_what_the_evaluation_found() -> None:
    beyond: dict[bool, list[float]] = {True: [], False: []}
    for table in re.findall(r"^\| \| job s.*(?:\n\|.*)+", (DOCS / "evaluation.md").read_text(), re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in line.split("|")] for line in table.splitlines())
        column = head.index("node-seconds beyond the policy")
        for row in rows:
            if row[1] != "reference":
                beyond[row[1] == "spazio"].append(float(row[column].split()[0]))
    ours, requests = max(beyond[True]), round(max(beyond[False]), -2)
    assert f"in {ours:g} node-seconds, requests alone in up to {requests:,.0f}" in (ROOT / "README.md").read_text()


def test_what_the_readme_claims_of_the_delay_of_jobs_is_what_the_evaluation_found() -> None:
    row = re.search(
        r"^\| spazio \| ([\d.]+ %) \((-?[\d.]+ to [\d.]+ %)\) \|$", (DOCS / "evaluation.md").read_text(), re.MULTILINE
    )
    assert row
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"take {row[1]} longer with the agent on it (95 %: {row[2]})" in readme


def test_what_pages_claim_of_the_agents_cost_is_what_the_benchmarks_found() -> None:
    rows = re.findall(
        r"^\| `python -m benchmarks\.(agent|pods).*\|(.+)\|$", (DOCS / "benchmarks.md").read_text(), re.MULTILINE
    )
    cells = dict(rows)
    alone = re.search(r"([\d.]+) to ([\d.]+) % of a core", cells["agent"])
    bare = re.search(r"([\d.]+) % without pods", cells["pods"])
    many = re.search(r"200 pods ([\d.]+) % asleep, ([\d.]+) % busy; (\d+) to (\d+) MB", cells["pods"])
    assert alone
    assert bare
    assert many
    low, high = round(float(alone[1]), 1), max(float(alone[2]), float(bare[1]))
    asleep, busy, smallest, largest = many.groups()
    pages = (ROOT / "README.md", DOCS / "operations.md", DOCS / "guarantees.md")
    readme, operations, guarantees = (" ".join(page.read_text().split()) for page in pages)
    assert f"takes {low} to {high} % of one core where no pods run, {asleep} to {busy} % with 200 pods" in readme
    assert f"and {smallest} to {largest} MB" in readme
    assert (
        f"| {low} to {high} % of a core without pods; {asleep} to {busy} % with 200 pods | {smallest} to {largest} MB |"
        in operations
    )
    assert (
        f"costs {low} to {high} % of one core where no pods run, {asleep} % with 200 pods that sleep and {busy} %"
        in guarantees
    )


def test_the_memory_of_the_page_on_sizes_is_what_the_manifests_request() -> None:
    page = (DOCS / "operations.md").read_text()
    for part in ("NATS", "history", "extender"):
        manifest = (ROOT / "deploy" / "kubernetes" / f"{part.lower()}.yaml").read_text()
        match = re.search(r"memory: (\d+)Mi}, limits: {memory: (\d+)Gi}", manifest)
        assert match
        assert re.search(rf"^\| {part} \|[^|]*\| {match[1]} MiB requested; ", page, re.MULTILINE), part
        assert int(match[2]) * 1024 >= 4 * int(match[1])


def test_the_explanation_of_what_fits_has_the_shares_that_are_computed() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) % \| ([\d.]+) \|$", (DOCS / "fits.md").read_text(), re.MULTILINE)
    slow = Settings().policy.slowdown or Settings().estimate.slowdown
    shares = {int(cpus): slowdown.share(slow, int(cpus)) for cpus, _, _ in rows}
    assert len(rows) == 6
    assert [f"{shares[int(cpus)]:.0%}" for cpus, _, _ in rows] == [f"{percent}%" for _, percent, _ in rows]
    assert [f"{shares[int(cpus)] * int(cpus):.1f}" for cpus, _, _ in rows] == [cores for _, _, cores in rows]


def test_the_page_on_predictions_names_every_peak_model() -> None:
    page = (DOCS / "predictions.md").read_text()
    assert [name for name in PEAK_MODELS if f"`{name}`" not in page] == []


def test_every_link_leads_somewhere() -> None:
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", document.read_text()):
            assert (ROOT / target).exists(), target


def test_every_decision_has_its_number_and_says_why() -> None:
    decisions = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [int(path.name[:4]) for path in decisions] == list(range(1, len(decisions) + 1))
    for path in decisions:
        assert "**Decision.**" in path.read_text()
        assert "**Why.**" in path.read_text()


def test_a_recipe_has_at_most_six_steps() -> None:
    pieces = re.split(r"^## (?:Add )?(.+)$", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.MULTILINE)[1:]
    steps = {
        title: [int(number) for number in re.findall(r"^(\d+)\. ", text, re.MULTILINE)]
        for title, text in zip(pieces[::2], pieces[1::2], strict=True)
    }
    assert {"a strategy", "a peak model", "an estimator", "a setting", "a sink", "Make a release"} <= steps.keys()
    assert {
        title for title, numbers in steps.items() if numbers not in [[*range(1, n + 1)] for n in range(2, 7)]
    } == set()
