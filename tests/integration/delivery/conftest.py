"""Fixtures of the delivery tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.integration.delivery.world import World, world_of


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """A fresh ledger with two tenants."""
    async with world_of(database_url) as made:
        yield made
