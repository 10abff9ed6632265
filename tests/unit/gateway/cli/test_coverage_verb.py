"""`sluicegate coverage`: its wrong usages are told before anything is asked of the ledger."""

from __future__ import annotations

import pytest

from gateway.cli.coverage import MEANINGS, _span_ms
from gateway.cli.output import Failed
from gateway.domain import coverage


@pytest.mark.parametrize(("text", "span_ms"), [("12h", 43_200_000), ("2d", 172_800_000), ("60d", 5_184_000_000)])
def test_spans(text: str, span_ms: int) -> None:
    assert _span_ms(text) == span_ms


@pytest.mark.parametrize("text", ["", "yesterday", "12", "0s", "61d", "-1h"])
def test_wrong_spans_are_wrong_usage(text: str) -> None:
    with pytest.raises(Failed) as failed:
        _span_ms(text)
    assert failed.value.code == 2


def test_every_verdict_is_explained() -> None:
    words = {coverage.COVERED, coverage.YOUNG, coverage.UNMATCHED, coverage.SILENT, coverage.THIN, coverage.IDLE}
    assert words == set(MEANINGS)
