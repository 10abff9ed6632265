"""The Node example of docs/receive-callbacks.md, run as it stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.test_docs_callbacks import check_receiver, receiver

pytestmark = pytest.mark.interop


async def test_the_node_receiver_takes_what_is_ours_and_nothing_else(tmp_path: Path) -> None:
    with receiver(["node"], tmp_path, "receive.js") as (url, printed):
        await check_receiver(url, printed)
