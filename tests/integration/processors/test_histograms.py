"""Histograms as Koordinator's checkpoints: out of a pipeline and back into it, on a real server."""

import asyncio
import json
from pathlib import Path

import pytest
from nats.aio.client import Client

from bus import stream
from bus.folding import worker_pool
from bus.folding.checkpoint import Checkpoint, Store
from processors.prediction.fold import PredictionPartition
from processors.prediction.histogram import bucket, exchange
from schemas.settings import Settings
from schemas.subject import Names
from spazio.command import histograms
from tests.integration.processors.test_engine import running
from tests.unit.processors.prediction.fold.recordings import calm, configured

NAMES = Names()


@pytest.fixture
async def stored(client: Client, settings: Settings) -> None:
    """A checkpoint of one node's predictions after three windows."""
    partition = PredictionPartition(configured(), 0)
    partition.fold(calm("n.1", range(100)))
    source = await stream.describe(client, NAMES.telemetry)
    await store(client, settings).save("outlook-0", Checkpoint(source.identity, 0, partition.snapshot(), 17, 3))


def store(client: Client, settings: Settings) -> Store:
    return Store(client, NAMES.checkpoints, timeout_seconds=settings.nats.request_timeout_seconds)


def files(folder: Path) -> dict[str, object]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): json.loads(path.read_text()) for path in paths}


@pytest.mark.usefixtures("stored")
async def test_what_was_exported_and_changed_comes_back_changed(
    client: Client, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await asyncio.to_thread(histograms.export, settings, tmp_path / "out") == 0
    (file,) = (tmp_path / "out").rglob("__node__")
    assert file.parent.name == "n_1"
    document = json.loads(file.read_text())
    assert document["UID"] == "__node__"
    document["CPU"]["bucketWeights"] = {"99": 10000}
    file.write_text(json.dumps(document))
    stranger = tmp_path / "out" / "stranger"
    stranger.mkdir()
    (stranger / file.name).write_text(json.dumps(document))
    assert await asyncio.to_thread(histograms.take, settings, tmp_path / "out") == 0
    captured = capsys.readouterr()
    assert "1 skipped" in captured.out
    after = await store(client, settings).load("outlook-0", (await stream.describe(client, NAMES.telemetry)).identity)
    assert after is not None
    assert (after.stored_us, after.published) == (17, 3)
    assert "stranger" in captured.err
    assert await asyncio.to_thread(histograms.export, settings, tmp_path / "again") == 0
    (stranger / file.name).unlink()
    assert files(tmp_path / "again") == files(tmp_path / "out")


@pytest.mark.usefixtures("stored")
async def test_files_as_koordinators_agent_leaves_them_are_read_and_so_are_those_of_older_exports(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await asyncio.to_thread(histograms.export, settings, tmp_path / "out") == 0
    (file,) = (tmp_path / "out").rglob("__node__")
    names = {path.name for path in file.parent.iterdir()}
    assert {json.loads(path.read_text())["UID"] for path in file.parent.iterdir()} == names
    file.with_suffix(".tmp").write_text("{")
    assert await asyncio.to_thread(histograms.take, settings, tmp_path / "out") == 0
    older = file.with_name("=5F=5Fnode=5F=5F.json")
    older.write_bytes(file.read_bytes())
    assert await asyncio.to_thread(histograms.take, settings, tmp_path / "out") == 1
    file.unlink()
    assert await asyncio.to_thread(histograms.take, settings, tmp_path / "out") == 0
    captured = capsys.readouterr()
    assert captured.out.count(f"{len(names)} histograms imported, 0 skipped") == 2
    assert "are of the same pod" in captured.err


@pytest.mark.usefixtures("stored")
async def test_checkpoints_of_the_vpa_go_out_and_come_back(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await asyncio.to_thread(histograms.export, settings, tmp_path / "out", "vpa") == 0
    (file,) = (tmp_path / "out").rglob("=5F=5Fnode=5F=5F.json")
    document = json.loads(file.read_text())
    assert document["status"]["version"] == "v3"
    document["status"]["cpuHistogram"]["bucketWeights"] = {"99": 10000}
    file.write_text(json.dumps(document))
    assert await asyncio.to_thread(histograms.take, settings, tmp_path / "out", "vpa") == 0
    assert "0 skipped" in capsys.readouterr().out
    assert await asyncio.to_thread(histograms.export, settings, tmp_path / "again") == 0
    (again,) = (tmp_path / "again").rglob("__node__")
    ((number, weight),) = json.loads(again.read_text())["CPU"]["bucketWeights"].items()
    # The bucket that holds the largest values of theirs.
    assert bucket.KOORDINATOR_CPU.starts[int(number)] < bucket.VPA_CPU.ends[99]
    assert bucket.KOORDINATOR_CPU.ends[int(number)] >= bucket.VPA_CPU.ends[99]
    assert weight == 10000


@pytest.mark.parametrize(
    "differing", [{"predict_half_life_cpu_seconds": "21600"}, {"predict_horizon_seconds": "86400"}]
)
async def test_a_checkpoint_of_other_settings_is_kept_as_it_is_and_goes_out_by_its_own_half_lives(
    client: Client,
    settings: Settings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    differing: dict[str, str],
) -> None:
    theirs = configured(**differing).predict
    partition = PredictionPartition(configured(**differing), 0)
    partition.fold(calm("n.1", range(100)))
    source = await stream.describe(client, NAMES.telemetry)
    before = Checkpoint(source.identity, 0, partition.snapshot(), stored_us=17, published=3)
    await store(client, settings).save("outlook-0", before)
    assert await asyncio.to_thread(histograms.export, settings, tmp_path / "out") == 0
    assert await asyncio.to_thread(histograms.take, settings, tmp_path / "out") == 1
    error = capsys.readouterr().err
    assert f"is of predict.horizon_seconds {theirs.horizon_seconds:g} and" in error
    assert "import with the settings of the processors" in error
    assert await store(client, settings).load("outlook-0", source.identity) == before
    same = settings.model_copy(update={"predict": theirs})
    for name, chosen in (("vpa", settings), ("same", same)):
        assert await asyncio.to_thread(histograms.export, chosen, tmp_path / name, "vpa") == 0
    assert files(tmp_path / "vpa") == files(tmp_path / "same")


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    ("text", "reason"),
    [("{", "JSON"), ('{"UID": "x"}', "CPU"), ("[]", "object")],
)
async def test_a_file_that_is_none_is_named_and_nothing_is_changed(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    (tmp_path / "in" / "n_1").mkdir(parents=True)
    (tmp_path / "in" / "n_1" / "x.json").write_text(text)
    assert await asyncio.to_thread(histograms.take, settings, tmp_path / "in") == 1
    error = capsys.readouterr().err
    assert "x.json" in error
    assert reason.lower() in error.lower() or "expecting" in error.lower()


@pytest.mark.slow
async def test_nothing_is_taken_while_processors_run_and_nothing_exported_before_a_checkpoint(
    client: Client, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert client.is_connected
    assert await asyncio.to_thread(histograms.export, settings, tmp_path / "out") == 1
    assert "once a minute" in capsys.readouterr().err
    assert await asyncio.to_thread(histograms.take, settings, tmp_path / "out") == 1
    assert "export" in capsys.readouterr().err
    partition = PredictionPartition(settings, 0)
    partition.fold(calm("n", range(70)))
    file = tmp_path / "out" / "n" / "x.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(exchange.write_koordinator(next(partition.models())[1])))
    with running(settings, "process"):
        async with asyncio.timeout(60):
            while not await worker_pool.replicas(client, settings.prefix):  # noqa: ASYNC110 # another process starts
                await asyncio.sleep(0.1)
        assert await asyncio.to_thread(histograms.take, settings, tmp_path / "out") == 1
    assert "stop them first" in capsys.readouterr().err
