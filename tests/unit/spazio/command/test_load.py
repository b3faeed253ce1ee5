"""What of a load is a failure, and what a signal has only cut short."""

from typing import Any

import pytest

from schemas.settings import load as load_settings
from spazio.command import load
from spazio.service import service


@pytest.mark.parametrize(
    ("changed", "over", "expected"),
    [
        ({}, True, "the server stored nothing"),
        ({}, False, ""),
        ({"refused": {"it is full": 3}}, False, "the server stored nothing; it is full"),
        ({"stored": 5, "unanswered": 1}, True, "the server has not acknowledged 1 message"),
        ({"stored": 5, "unanswered": 1, "refused": {"it is full": 3}}, False, ""),
        ({"nodes": 0}, True, ""),
    ],
)
def test_what_was_not_stored_is_a_failure_if_the_load_has_ended_by_itself_or_was_refused(
    changed: dict[str, Any], over: bool, expected: str
) -> None:
    reached: dict[str, Any] = {"nodes": 3, "stored": 0, "unanswered": 0, "refused": {}}
    assert load._failure(reached | changed, over=over) == expected


def test_a_load_that_a_signal_ends_before_it_has_begun_was_stopped_as_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def reach(_: object) -> None:
        """Find the server."""

    monkeypatch.setattr(load, "_reach", reach)
    monkeypatch.setattr(service, "run", lambda *_, **__: 0)
    assert load.run(load_settings({"simulated_nodes": "3"}, environ={}), json_output=True) == 0
    assert capsys.readouterr() == ("", "")
