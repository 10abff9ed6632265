"""A client on the real Valkey of the test run."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis


@pytest.fixture
async def index(redis_url: str) -> AsyncIterator[Redis]:
    """An emptied Valkey."""
    client = Redis.from_url(redis_url)
    yield client
    await client.aclose()
