"""The sections of the services between the bus and what is stored: processors, history, scheduler cache."""

from pydantic import Field

from schemas.sections.section import RELOAD, OptionalFolder, Seconds, Section


class Process(Section):
    """How processors run."""

    checkpoint_seconds: Seconds = Field(
        5,
        json_schema_extra=RELOAD,
        description="Seconds between two checkpoints of a partition, and so the longest replay after a crash. Shorter "
        "intervals write more; longer ones delay recovery.",
    )
    tick_seconds: float = Field(
        0.01,
        ge=0,
        le=1,
        json_schema_extra=RELOAD,
        description="Seconds for which a processor collects messages before it folds them together. 0: it folds what "
        "has arrived. The default is short beside the one second between two blocks of a node.",
    )
    batch: int = Field(
        2000,
        ge=1,
        le=10_000,
        description="Messages that one request asks the server for. Small batches cost more per message; larger ones "
        "need more memory.",
    )
    aggregate: bool = Field(
        True,
        description="Make the global model out of the partitions' models. A replay of a history turns it off, because "
        "the recording contains the global model.",
    )
    collect: bool = Field(
        True,
        description="Collect messages, and rows to store, for up to a tenth of a second and longer under load, which "
        "saves CPU time. A replay that makes the global model turns it off: each recorded second waits for the model "
        "of an earlier one.",
    )
    shed: bool = Field(
        True,
        description="Leave out floods of single nodes, then predictions, and then older blocks, while the machine "
        "cannot keep up, so that availability stays fresh; what is left out is counted. Without it everything is "
        "folded, however late, and a replay of the streams gives the same rows. A replay of a history turns it off.",
    )
    failover_seconds: float = Field(
        3,
        ge=1,
        le=3600,
        description="Seconds without a request after which a replica loses its partitions to the others. A live "
        "replica asks at least three times in that time. A shorter limit could take partitions from a busy replica.",
    )
    replicas: int = Field(
        1,
        ge=1,
        le=64,
        description="Processors that `spazio up` and `spazio replay` start. Each folds its share of the partitions, on "
        "one core; start another when `spazio_messages_skipped_total` grows, or a replay takes long, and a core is "
        "free. Elsewhere start `spazio process` so many times.",
    )
    replica: int = Field(
        1,
        ge=1,
        description="Number of this processor among those that share a data folder. It names the file with its "
        "address there; `spazio up` sets it.",
    )
    nodes_max: int = Field(
        0,
        ge=0,
        description="Nodes of a partition that may have state although Kubernetes does not know them; messages of more "
        "are left out and counted. Nodes that it knows always have state. 0: four times the nodes of the partition "
        "that it knows, and at least 8000 over all partitions. A node takes about 62 kB of memory, so 8000 nodes take "
        "half a GiB.",
    )
    pods_max: int = Field(
        32_000,
        ge=1,
        description="Pods of a partition that have statistics for predictions; more are left out and counted. A pod "
        "takes about 2 kB of memory. The default is 128 pods on each of 250 nodes. A node may add at most 2048 in "
        "each `predict.update_seconds`.",
    )


class History(Section):
    """Parquet files and the views over them."""

    dir: OptionalFolder = Field(None, description="Folder of the history. Empty: `history` in the data folder.")
    flush_seconds: Seconds = Field(
        5,
        json_schema_extra=RELOAD,
        description="Seconds between two writes of rows to files, and so the delay until a query sees a row. Shorter "
        "intervals make more and smaller files, which the history has to merge.",
    )
    retention_seconds: float = Field(
        7 * 86_400,
        gt=0,
        le=86_400 * 366 * 100,
        json_schema_extra=RELOAD,
        description="Age in seconds after which the history deletes an hour of rows, by event time. The default of one "
        "week covers the weekly rhythm of load. Older rows that arrive are refused and counted. Rows whose roll-up is "
        "not written yet stay until it is.",
    )
    retention_1s_seconds: float = Field(
        0,
        ge=0,
        le=86_400 * 366 * 100,
        json_schema_extra=RELOAD,
        description="Age in seconds after which the history deletes an hour of `samples_1s`: least, mean, greatest and "
        "95th percentile of each node's samples by the second. 0: none are made, and those that exist are deleted. "
        "That is the default, because they take nearly half of what samples at 10 Hz take; they are for those who keep "
        "samples for less than a week.",
    )
    retention_10s_seconds: float = Field(
        14 * 86_400,
        ge=0,
        le=86_400 * 366 * 100,
        json_schema_extra=RELOAD,
        description="The same for `samples_10s`, by ten seconds. The default of two weeks is twice that of samples, of "
        "which they take a tenth. 0: none are made, and those that exist are deleted.",
    )
    retention_1m_seconds: float = Field(
        90 * 86_400,
        ge=0,
        le=86_400 * 366 * 100,
        json_schema_extra=RELOAD,
        description="The same for `samples_1m`, by the minute, and for the closed hours of `availability_1m` and "
        "`cluster`. The default of a quarter serves planning. 0: none are made, and those that exist are deleted. "
        "Rows of `nodes`, `podfacts`, `decisions` and `trust` stay as long, if that is longer than "
        "`retention_seconds`.",
    )
    ahead_seconds: float = Field(
        3600,
        gt=0,
        le=86_400 * 366 * 100,
        json_schema_extra=RELOAD,
        description="Seconds by which a row's time may be ahead of this machine's clock. Rows further ahead are "
        "refused and counted. An hour allows for a wrong time zone by one.",
    )
    node_messages_per_minute: int = Field(
        6000,
        ge=0,
        json_schema_extra=RELOAD,
        description="Messages of one node that the history stores in one table for each minute of the stream. It "
        "refuses the others and counts them, so that one agent cannot keep it from everybody else's rows. A node sends "
        "60, and after an outage also what it kept meanwhile, at most 3,600 of an hour. 0: no limit, and rows of any "
        "number of hours have files of their own in one write, instead of 24.",
    )
    max_bytes: int = Field(
        0,
        ge=0,
        json_schema_extra=RELOAD,
        description="Bytes that the files of the history may take. Every ten minutes the history deletes the oldest "
        "whole hours beyond that: first those of rows, then of roll-ups, and last those of states of nodes and pods, "
        "decisions and trust. Decisions and states of pods beyond half of it count as rows. The current hour stays. 0: "
        "no limit but the retention.",
    )
    buffer_rows: int = Field(
        500_000,
        ge=1000,
        json_schema_extra=RELOAD,
        description="Rows of a stream that the history holds in memory. At the limit it writes them at once; while the "
        "disk is full it stops reading instead, and the rest stays in the stream. The limit bounds memory.",
    )


class Cache(Section):
    """The scheduler cache."""

    expiry_seconds: Seconds = Field(
        30,
        description="Age in seconds from which an availability counts as absent. The default is seven missed reports "
        "of `estimate.report_seconds`.",
    )
