"""The command line. Each command only passes settings to one function of another module and returns its exit status."""

import logging
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from schemas import role
from schemas.messages.base import RELEASE
from schemas.settings import Settings
from spazio import INTERRUPTED, queries, sink
from spazio.backup import command as keeping
from spazio.credentials import cli as credentials_cli
from spazio.export import command as exporting
from spazio.option import PIPELINE, meant, with_settings
from spazio.terminal import clean

app = typer.Typer(
    name="spazio",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
app.add_typer(sink.app, name="sink")
histograms_app = typer.Typer(
    help="Exchange learned histograms of usage as checkpoints of Koordinator or of the VPA.", no_args_is_help=True
)
app.add_typer(histograms_app, name="histograms")


def _show_version(wanted: bool) -> None:  # as the framework calls it
    if wanted:
        print(f"spazio {RELEASE}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[  # its callback prints it
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Measure nodes ten times a second and estimate how many more pods fit."""


def main() -> int:
    """Run the command line and return its exit status."""
    # Services set up their logs; other commands say themselves what is wrong, without bare lines of logs before it.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        status = meant(app, sys.argv[1:])(prog_name="spazio", standalone_mode=False)
    except typer.Exit as leaving:
        return leaving.exit_code
    except typer.Abort:
        return INTERRUPTED
    except typer.TyperException as error:
        if message := error.format_message().rstrip("."):  # empty where a group of commands has printed its help
            mark = "" if message.endswith("?") else ";"
            asked = getattr(getattr(error, "ctx", None), "command_path", "spazio")
            listed = "commands" if asked == "spazio" else "arguments"
            sys.stderr.write(f"spazio: {message}{mark} `{asked} --help` lists the {listed} and options\n")
        return error.exit_code
    return status if isinstance(status, int) else 0


@app.command()
@with_settings(
    *PIPELINE,
    *(
        "containers",
        "sample",
        "runtime",
        "smoothing",
        "model",
        "policy",
        "estimate",
        "predict",
        "reject",
        "forecast",
        "process",
        "history",
        "cache",
        "extender",
        "dashboard",
        "kube",
    ),
    *("simulated_nodes", "simulated_seed", "simulated_churn_per_minute", "simulated_kinds"),
)
def up(settings: Settings) -> int:
    """Run everything on this machine: NATS, agent, processors, sinks. Ctrl-C ends it."""
    from spazio import extra
    from spazio.command import up as command

    extra.require("up")  # its services need them, and each would say so
    return command.run(settings)


# In the order of `--help`: what a newcomer needs first.
for _query in (queries.top, queries.sql, queries.explain, queries.doctor, exporting.export, queries.ledger):
    app.command()(_query)


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True}, add_help_option=False)
def agent(context: typer.Context) -> int:
    """Measure this node and publish one block of samples each second."""
    from spazio.command import agent as command

    return command.main(context.args)


@app.command()
@with_settings(*PIPELINE, "containers", "sample", "runtime", "edge", "smoothing", "model", "policy", "estimate")
def edge(settings: Settings) -> int:
    """Measure and model this node, and publish only its model and last values."""
    from spazio.command import edge as command

    return command.run(settings)


@app.command()
@with_settings(*PIPELINE, "smoothing", "model", "policy", "estimate", "predict", "reject", "forecast", "process")
def process(settings: Settings) -> int:
    """Fold telemetry into availability."""
    from spazio.service import processing, service

    return service.run("process", settings, processing.serve)


@app.command()
@with_settings(*PIPELINE, "simulated")
def load(
    settings: Settings,
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Simulate nodes and publish their messages, until Ctrl-C or for a number of seconds."""
    from spazio.command import load as command
    from spazio.service import addresses

    return command.run(addresses.located(settings, "load"), json_output=json_output)


@app.command()
@with_settings(
    *PIPELINE,
    *("replay", "smoothing", "model", "policy", "estimate", "predict", "reject", "forecast", "process"),
    *("history_dir", "history_flush_seconds"),
)
def replay(
    settings: Settings,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="CSV or Parquet files, or the folder of a history; default: the history of the data folder."
        ),
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out unusable rows.")] = False,
    feed_only: Annotated[bool, typer.Option("--feed-only", help="Publish only; do not run processors.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Send recorded telemetry through the pipeline, at any speed, and keep the results."""
    from spazio.command import replay as command

    recorded = files or [Path("history")]
    return command.run(settings, recorded, skip_bad=skip_bad, feed_only=feed_only, json_output=json_output)


@app.command()
def backtest(
    file: Annotated[Path, typer.Argument(help="Parquet or CSV: day, vm, sample, cpu_percent; docs/backtest.md.")],
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = Path("backtest"),
    train: Annotated[
        Path | None,
        typer.Option(
            help="Recording of other days that peers are tuned on; FILE then holds vm, seconds, cpu, cpu_request."
        ),
    ] = None,
    hours: Annotated[list[float] | None, typer.Option(help="Horizon with --train; may be given several times.")] = None,
    learned: Annotated[Path | None, typer.Option(help="learned.npz of another run; needed for a single day.")] = None,
    machines: Annotated[int, typer.Option(help="Machines per node.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the draws and of the bootstrap.")] = 0,
    plots: Annotated[bool, typer.Option(help="Draw frontier.png and calibration.png.")] = True,
) -> int:
    """Compare peak predictors with the usage that followed, on recordings."""
    from spazio import backtest as command

    try:
        if train or hours:
            print(clean.lines(command.roll(file, train, out, learned, hours=hours, machines=machines, seed=seed)))
            return 0
        result = command.run(file, out, learned=learned, machines=machines, seed=seed, plots=plots)
    except (ValueError, RuntimeError, OSError) as error:
        clean.complain(error)
        return 1 if isinstance(error, OSError) else 2
    print(clean.lines(command.report.text(result)))
    return 0


@app.command()
@with_settings("sample_cgroup", "sample_proc", "policy", "estimate", "model", "log")
def truth(
    settings: Settings,
    out: Annotated[Path, typer.Option(readable=False, help="Folder to write into.")] = Path("truth"),
    quick: Annotated[bool, typer.Option("--quick", help="Four families, in under four minutes.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Family to run; may be given several times.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Evaluate the existing recording in the folder.")] = False,
    plots: Annotated[bool, typer.Option(help="Draw truth.png.")] = True,
    json_output: Annotated[bool, typer.Option("--json", help="Print report.json.")] = False,
) -> int:
    """Measure how many pods fit on this machine, and compare with the estimates. Needs root or a delegated cgroup."""
    from spazio import truth as command

    return command.run(settings, out, quick=quick, only=only or (), again=again, plots=plots, json_output=json_output)


@app.command()
@with_settings("kube")
def simulate(
    settings: Settings,
    scenario: Annotated[
        str | None, typer.Argument(help="TOML file, or the name of a scenario that comes with spazio.")
    ] = None,
    from_cluster: Annotated[
        bool, typer.Option("--from-cluster", help="Nodes and pods of the cluster that the kubeconfig names.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Runs of each scheduler, each with a seed.")] = 1,
    only: Annotated[list[str] | None, typer.Option(help="Scheduler to run; may be given several times.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for runs.parquet, every figure of every run, and scenario.toml.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Compare schedulers on a simulated cluster, in virtual time."""
    from spazio.simulation import compare, source

    chosen = source.of(scenario, settings.kube if from_cluster else None)
    return compare.run(chosen, seeds=seeds, only=only or (), out=out, json_output=json_output)


@histograms_app.command("export")
@with_settings(*PIPELINE, "predict", "reject", "forecast", "estimate")
def export_histograms(
    settings: Settings,
    folder: Annotated[Path, typer.Argument(help="Folder to write into.")],
    form: Annotated[Literal["koordinator", "vpa"], typer.Option(help="Whose checkpoints they are.")] = "koordinator",
) -> int:
    """Write the checkpointed histograms of all processors, one file each."""
    from spazio.command import histograms
    from spazio.service import addresses

    return histograms.export(addresses.located(settings, role.ADMIN), folder, form)


@histograms_app.command("import")
@with_settings(*PIPELINE, "predict", "reject", "forecast", "estimate")
def import_histograms(
    settings: Settings,
    folder: Annotated[Path, typer.Argument(help="Folder to read.")],
    form: Annotated[Literal["koordinator", "vpa"], typer.Option(help="Whose checkpoints they are.")] = "koordinator",
) -> int:
    """Replace the checkpointed histograms, while no processor runs."""
    from spazio.command import histograms
    from spazio.service import addresses

    return histograms.take(addresses.located(settings, role.ADMIN), folder, form)


@app.command()
@with_settings(*PIPELINE, "kube")
def watch(settings: Settings) -> int:
    """Follow nodes and pods of a Kubernetes cluster."""
    from spazio.command import watch as command

    return command.run(settings)


@app.command()
@with_settings(*PIPELINE, "sample_node", "sample_proc", "sample_cgroup", "kube_config", "kube_context", "govern")
def govern(settings: Settings) -> int:
    """Limit Mid and Batch pods of this node, so that production is not slowed down. Needs root."""
    from spazio.governing import command

    return command.run(settings)


for _kept in (keeping.backup, keeping.restore, credentials_cli.credentials):
    app.command()(_kept)


@app.command()
def schema(
    out: Annotated[
        Path | None, typer.Option(help="Folder to write into. Without it the documents are printed.")
    ] = None,
) -> int:
    """Write JSON Schema of every message and an AsyncAPI document."""
    from spazio.command import schema as command

    return command.run(out)
