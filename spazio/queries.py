"""Commands that look at a running pipeline or at its history, and change nothing."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from schemas import role
from schemas.settings import Settings
from spazio.option import PIPELINE, with_settings


@with_settings(*PIPELINE, "cache", "extender", "kube", "model_variant", "history_dir")
def explain(
    settings: Settings,
    pod: Annotated[
        Path,
        typer.Argument(
            help="YAML or JSON file with Pods, workloads with a pod template, or Lists; - for standard input."
        ),
    ],
    json_output: Annotated[bool, typer.Option("--json", help="Print the decision as JSON.")] = False,
) -> int:
    """Rank nodes for a pod and show why; nothing is placed or reserved."""
    from spazio.command import explain as command
    from spazio.service import addresses

    return command.run(addresses.located(settings), pod, json_output=json_output)


@with_settings("data", "nats", "cache", "log")
def top(
    settings: Settings,
    once: Annotated[bool, typer.Option("--once", help="Show the table once and exit.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="With --once: JSON for programs.")] = False,
    classes: Annotated[bool, typer.Option("--classes", help="With --json: workload classes, not nodes.")] = False,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="Show which processor holds which partition, and how far behind it is.")
    ] = False,
) -> int:
    """Show live tables of nodes and of workload classes, or of partitions."""
    from spazio.command import top as command
    from spazio.service import addresses

    if fault := _clash(once=once, json_output=json_output, classes=classes, partitions=partitions):
        sys.stderr.write(f"spazio: {fault}\n")
        return 2
    return command.run(
        addresses.located(settings), once=once, json_output=json_output, classes=classes, parts=partitions
    )


def _clash(*, once: bool, json_output: bool, classes: bool, partitions: bool) -> str:
    """Return which options of `top` do not go together; empty: they do."""
    if classes and partitions:
        return "--classes does not go with --partitions"
    if classes and not json_output:
        return "--classes needs --json; without it the table has both nodes and classes"
    return "--json needs --once" if json_output and not once else ""


@with_settings("data", "history")
def sql(
    settings: Settings,
    statement: Annotated[
        str | None, typer.Argument(help="One SQL statement. Without it an interactive prompt opens.")
    ] = None,
    form: Annotated[
        Literal["table", "csv", "json", "parquet"],
        typer.Option("--format", help="How rows are printed; csv has a heading, parquet is for a file."),
    ] = "table",
    json_output: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    unrestricted: Annotated[
        bool,
        typer.Option(
            "--unrestricted",
            help="Turn the limits off: statements may read and write any file that you may, and load extensions. "
            "Without it they only read the history.",
        ),
    ] = False,
) -> int:
    """Query the history with DuckDB, while the pipeline runs."""
    from spazio.command import sql as command

    if json_output and form not in ("table", "json"):
        sys.stderr.write(f"spazio: --json and --format {form} exclude each other\n")
        return 2
    return command.run(settings.history_dir, statement, form="json" if json_output else form, unrestricted=unrestricted)


@with_settings("data", "history")
def ledger(
    settings: Settings,
    account: Annotated[
        Literal["placements", "promises", "savings"],
        typer.Argument(
            help="placements: how often the scheduler broke the policy (shadow mode); promises: how often a node with "
            "room for a pod then was beyond the policy; savings: what measured room leaves more than requests do."
        ),
    ] = "placements",
    form: Annotated[
        Literal["table", "csv", "json"], typer.Option("--format", help="How rows are printed; csv has a heading.")
    ] = "table",
) -> int:
    """Show by week whether the policy was broken, whether room that was stated held, and what it saves."""
    from spazio.command import sql as command

    return command.ledger(settings.history_dir, account, form=form)


@with_settings("data", "nats", "containers", "sample", "runtime", "history", "log")
def doctor(
    settings: Settings,
    json_output: Annotated[bool, typer.Option("--json", help="Print findings as a JSON array.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Status 1 also for what lacks, not only for what is broken.")
    ] = False,
    flow: Annotated[
        bool,
        typer.Option(
            "--flow",
            help="Show instead what was published, read, stored and lost in the last hour; status 1 if it does not "
            "add up.",
        ),
    ] = False,
) -> int:
    """Check what this machine offers, what is missing, and how to fix it."""
    from spazio.command import doctor as command
    from spazio.service import addresses
    from spazio.terminal import flow as account

    if flow:
        return account.run(addresses.located(settings, role.ADMIN), json_output=json_output)
    return command.run(addresses.located(settings, role.ADMIN), json_output=json_output, strict=strict)
