"""`spazio sink NAME`: the commands that run one sink as a service."""

import os
from collections.abc import Awaitable

import typer

from schemas.settings import Settings
from spazio.option import PIPELINE, with_settings

app = typer.Typer(help="Run one sink as a service.", no_args_is_help=True)

_REST_SECONDS = 0.02  # for which the history leaves small pieces of data to the kernel, so that they become large ones
_NICENESS = 5  # of the history: its rows can wait in the streams, while placement waits for the other services


@app.command()
@with_settings(*PIPELINE, "cache")
def cache(settings: Settings) -> int:
    """Keep the scheduler cache: the newest availability of each node."""
    from sinks import cache as sink
    from spazio.service import service

    return service.run("cache", settings, lambda context: sink.run(context.client, context.settings, context.health))


@app.command()
@with_settings(*PIPELINE, "history")
def history(settings: Settings) -> int:
    """Write history: Parquet files and DuckDB views over them."""
    from sinks.history import service as sink
    from spazio.service import service

    os.nice(_NICENESS)

    def work(context: service.Context) -> Awaitable[None]:
        context.client.rest_seconds = _REST_SECONDS
        return sink.run(context.client, context.live, context.health)

    return service.run("history", settings, work)


@app.command()
@with_settings(*PIPELINE, "cache", "predict", "reject", "forecast")
def metrics(settings: Settings) -> int:
    """Serve each node's availability to Prometheus."""
    from sinks.metrics import service as sink
    from spazio.service import service

    return service.run("metrics", settings, lambda context: sink.run(context.client, context.settings))


@app.command()
@with_settings(*PIPELINE, "cache", "extender", "kube", "model_variant", "history_dir")
def extender(settings: Settings) -> int:
    """Answer kube-scheduler: which nodes a pod may go to, and which is best."""
    from spazio.service.composition import extender as command

    return command.run(settings)


@app.command()
@with_settings(*PIPELINE, "output", "kube")
def kubernetes(settings: Settings) -> int:
    """Write to Kubernetes: extended resources, NodeMetrics, floors of HorizontalPodAutoscalers, marks of nodes."""
    from spazio.service.composition import kubernetes as command

    return command.run(settings)


@app.command()
@with_settings(*PIPELINE, "cache", "dashboard", "history_dir")
def dashboard(settings: Settings) -> int:
    """Serve pages for a browser: cluster, nodes, pipeline, and SQL over the history."""
    from spazio.service.composition import dashboard as command

    return command.run(settings)
