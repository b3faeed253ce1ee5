"""A replay's own settings: what describes the live pipeline leads into none of its data."""

import shutil
from pathlib import Path

import pytest

from producers.recorded import recording
from schemas import codec, subject
from schemas.messages.estimate import Model
from schemas.sections.generator import Replay
from schemas.settings import load
from spazio.generator import isolation
from tests.support.processors import telemetry
from tests.support.processors.telemetry import NAMES, START, stored
from tests.unit.spazio.command.recordings import SIZES, history


def test_history_is_that_of_the_live_pipeline_unless_there_is_such_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = load({"data_dir": str(tmp_path / "data")}, environ={})
    elsewhere = load({"history_dir": str(tmp_path / "elsewhere")}, environ={})
    (tmp_path / "here" / "history").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert isolation.located(live, Path("history")) == tmp_path / "data" / "history"
    assert isolation.located(elsewhere, Path("history")) == tmp_path / "elsewhere"
    assert isolation.located(live, Path("trace.csv")) == Path("trace.csv")
    monkeypatch.chdir(tmp_path / "here")
    assert isolation.located(live, Path("history")) == Path("history")


def test_the_history_of_a_replay_is_its_own_or_an_option_and_not_what_is_configured(tmp_path: Path) -> None:
    settings = load({"data_dir": str(tmp_path), "history_dir": str(tmp_path / "live")}, environ={})
    own = isolation.isolated(settings, ())
    assert own.history_dir == own.data.dir / "history"
    assert own.data.dir.parent == tmp_path / "replay"
    assert isolation.isolated(settings, {"history_dir"}).history_dir == tmp_path / "live"


def test_a_folder_that_has_a_history_gets_none_of_a_replay(tmp_path: Path) -> None:
    folder = history(tmp_path / "live", [stored(telemetry.block("n", 0))])
    settings = load({"data_dir": str(tmp_path), "history_dir": str(folder)}, environ={})
    with pytest.raises(isolation.InUse, match="live holds a history; name another folder with --history-dir"):
        isolation.isolated(settings, {"history_dir"})


def test_streams_of_a_replay_have_a_prefix_of_their_own_unless_it_is_an_option(tmp_path: Path) -> None:
    for configured in ("spazio", "west", "a" * 32):
        settings = load({"data_dir": str(tmp_path), "prefix": configured}, environ={})
        own = isolation.isolated(settings, ()).prefix
        assert own != configured
        assert own.endswith("replay")
        assert load({"prefix": own}, environ={}).prefix == own
        assert isolation.isolated(settings, {"prefix"}).prefix == configured


@pytest.mark.slow
def test_few_nodes_without_a_model_are_in_one_partition_a_processor_and_others_in_those_of_the_recording(
    tmp_path: Path,
) -> None:
    def partitions(name: str, messages: list[tuple[str, bytes]], *, models: bool = False, **flags: str) -> int:
        settings, folder = load(flags, environ={}), history(tmp_path / name, messages)
        if not models:
            shutil.rmtree(folder / "models")
        with recording.opened([folder], Replay.model_validate(SIZES), tmp_path / name / "work") as opened:
            return isolation.few_partitions(settings, opened).nats.partitions

    few = telemetry.recording(nodes=3, seconds=2)
    assert partitions("few", few) == 1
    assert partitions("processors", few, process_replicas="2") == 2
    assert partitions("given", few, nats_partitions="4") == 4
    assert partitions("many", [stored(telemetry.block(f"n{number}", 0)) for number in range(501)]) == 8
    assert partitions("untold", few, models=True) == 8
    with_model = [*few, made_in(2)]
    assert partitions("recorded", with_model, models=True) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("number", "least"), [(1, 1), (2, 2), (8, 8), (20, 10)])
def test_a_small_cluster_is_replayed_in_the_partitions_of_its_recording_although_some_had_no_node(
    tmp_path: Path, number: int, least: int
) -> None:
    blocks = [stored(telemetry.block(f"node-{index}", 0)) for index in range(3)]
    used = {subject.partition(subject.token(f"node-{index}"), number) for index in range(3)}
    folder = history(tmp_path / "history", [*blocks, *(made_in(each) for each in used)])
    with recording.opened([folder], Replay.model_validate(SIZES), tmp_path / "work") as opened:
        wanted = isolation.few_partitions(load({}, environ={}), opened).nats.partitions
    assert {subject.partition(subject.token(f"node-{index}"), wanted) for index in range(3)} == used
    assert wanted == least


def made_in(partition: int) -> tuple[str, bytes]:
    """Return the model of a partition."""
    model = Model(
        scope="partition", partition=partition, at_us=START * 1_000_000, features=["cpu"], moment=[1.0], cost=[0.0],
        pods=2, nodes=1,
    )  # fmt: skip
    return NAMES.of("model", "partition", str(partition)), codec.encode(model)
