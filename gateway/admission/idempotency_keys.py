"""The Idempotency-Key header (contract section 2): `A-Za-z0-9_:.-`, 1 to 255, quoted or not."""

from __future__ import annotations

import re

from gateway.admission.problems import IDEMPOTENCY_MALFORMED, IDEMPOTENCY_MISSING, Problem

_KEY = re.compile(r'(")?([A-Za-z0-9_:.-]{1,255})(?(1)")')


def read(header: str | None) -> str | Problem:
    """The key that a header's value names, or what is wrong with it."""
    if header is None:
        return IDEMPOTENCY_MISSING
    found = _KEY.fullmatch(header.strip(" \t"))
    return found.group(2) if found is not None else IDEMPOTENCY_MALFORMED
