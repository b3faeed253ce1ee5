"""`python -m benchmarks.recordings FORM SOURCE OUT`: public recordings for `spazio backtest TEST --train TRAIN`.

Writes OUT.parquet, and the halves of its time as OUT-first.parquet and OUT-second.parquet. The recordings themselves
are not part of this repository; docs/backtest.md says where they are published.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import polars as pl

STEP_SECONDS = 300


def bitbrains(source: Path) -> pl.DataFrame:
    """Read the folder of a trace as OpenDC has it: meta.parquet and trace.parquet; an equal usage is one row there."""
    machines = pl.read_parquet(source / "meta.parquet").select(
        pl.col("id"), pl.col("cpu_count").alias("cores"), pl.col("cpu_capacity").alias("capacity")
    )
    rows = pl.read_parquet(source / "trace.parquet").join(machines, on="id")
    steps = (pl.col("duration") / 1000 / STEP_SECONDS).round().cast(pl.Int64).clip(1)
    return (
        rows.with_columns(ago=pl.int_ranges(0, steps))
        .explode("ago")
        .select(
            vm=pl.col("id"),
            seconds=pl.col("timestamp").dt.epoch("s") - 1 - pl.col("ago") * STEP_SECONDS,
            cpu=(pl.col("cpu_usage") / pl.col("capacity")).clip(0, 1) * pl.col("cores"),
            cpu_request=pl.col("cores").cast(pl.Float64),
        )
    )


def nab(source: Path) -> pl.DataFrame:
    """Read the folder data/realAWSCloudwatch of the Numenta Anomaly Benchmark; all series are put on the same days."""
    parts = []
    for path in sorted(source.glob("*_cpu_utilization_*.csv")):
        second = pl.col("timestamp").str.to_datetime("%Y-%m-%d %H:%M:%S").dt.epoch("s")
        frame = pl.read_csv(path).select(vm=pl.lit(path.stem), seconds=second, cpu=pl.col("value").clip(0, 100) / 100)
        midnight = pl.col("seconds").min() // 86_400 * 86_400
        parts.append(frame.with_columns(pl.col("seconds") - midnight + 86_400, cpu_request=pl.lit(1.0)))
    return pl.concat(parts)


def alibaba(source: Path) -> pl.DataFrame:
    """Read machine_usage.csv of the trace of 2018, or a part of it; machines with few samples are left out."""
    frame = pl.read_csv(source, has_header=False, columns=[0, 1, 2])
    frame.columns = ["vm", "seconds", "percent"]
    frame = frame.filter(pl.col("percent").is_between(0, 100) & (pl.len().over("vm") > 2000))
    return frame.select("vm", seconds=pl.col("seconds") + 86_400, cpu=pl.col("percent") / 100, cpu_request=pl.lit(1.0))


def columns(source: Path) -> pl.DataFrame:
    """Read a CSV file with one machine a column and one row in five minutes, in percent: samples of Azure's trace."""
    frame = pl.read_csv(source).with_row_index("step")
    return frame.unpivot(index="step", variable_name="vm", value_name="percent").select(
        "vm",
        seconds=86_400 + pl.col("step").cast(pl.Int64) * STEP_SECONDS,
        cpu=pl.col("percent").clip(0, 100) / 100,
        cpu_request=pl.lit(1.0),
    )


FORMS: dict[str, Callable[[Path], pl.DataFrame]] = {form.__name__: form for form in (bitbrains, nab, alibaba, columns)}


def write(frame: pl.DataFrame, out: Path) -> None:
    """Write means over steps of five minutes, and both halves of the time."""
    step = pl.col("seconds") // STEP_SECONDS * STEP_SECONDS
    means = frame.group_by("vm", step).agg(pl.col("cpu").mean(), pl.col("cpu_request").max()).sort("seconds", "vm")
    times = means["seconds"].unique().sort()
    middle = times[len(times) // 2]
    halves = {"": means, "-first": means.filter(pl.col("seconds") < middle)}
    halves["-second"] = means.filter(pl.col("seconds") >= middle)
    for suffix, part in halves.items():
        part.write_parquet(out.with_name(f"{out.name}{suffix}.parquet"))


def main() -> None:
    """Convert one recording."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("form", choices=FORMS)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    write(FORMS[given.form](given.source), given.out)


if __name__ == "__main__":
    main()
