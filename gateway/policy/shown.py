"""Texts of policies for people: what they see hides the secrets, what they send back has them again."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.policy import versions
from gateway.policy.rules.hidden import hide, put_back, versions_of

# A text out of the console or of `policy show` names one version; one put together by hand a few.
_VERSIONS_MAX = 20

__all__ = ["hide", "with_secrets"]


async def with_secrets(conn: Any, source: str) -> str:
    """A text that came back, with the secrets of the versions that its marks name."""
    asked = sorted(versions_of(source), reverse=True)[:_VERSIONS_MAX]
    if not asked:
        return source
    texts = await versions.texts_of(conn, asked)
    return await asyncio.to_thread(put_back, source, texts)
