"""Label selectors as kubectl and autoscalers write them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.kubernetes.external import selector

WEB = {"kind": "Deployment", "workload": "web"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        (" ", True),
        ("kind=Deployment", True),
        ("kind==Deployment,workload=web", True),
        ("kind = Deployment , workload = web", True),
        ("kind!=Deployment", False),
        ("other!=x", True),
        ("workload in (api,web)", True),
        ("workload in ( api, web )", True),
        ("workload in (api)", False),
        ("workload notin (api)", True),
        ("workload notin (api,web)", False),
        ("other notin (api)", True),
        ("other in (api)", False),
        ("kind", True),
        ("other", False),
        ("!other", True),
        ("!kind", False),
        ("kind,workload=api", False),
        ("workload=", False),
        ("a.b/c!=d", True),
    ],
)
def test_labels_match_as_the_api_says(text: str, matches: bool) -> None:
    assert selector.matcher(text)(WEB) is matches


@pytest.mark.parametrize("text", ["=", "a=b,", ",a=b", "a===b", "a in b", "a in (b", "!", "a b", "a=b c", "x" * 5000])
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="labelSelector"):
        selector.parse(text)


@given(st.text(alphabet="ab=!,() in", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert selector.matcher(text)(WEB) in (True, False)
