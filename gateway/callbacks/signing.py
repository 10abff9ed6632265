"""Signatures of callbacks in the form of Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`."""

from __future__ import annotations

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Final
from uuid import UUID

ROTATING: Final = 2  # so many secrets are valid at once during a rotation
_PREFIX: Final = "whsec_"


def webhook_id(of: UUID) -> str:
    """The `webhook-id` of a notice: the same over all its tries."""
    return "evt_" + of.hex


class Signer:
    """Signs for one endpoint with each of its secrets (`whsec_` base64, or any text where it is not base64).

    Raises ValueError where there is no secret, or an empty one.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        if not secrets:
            raise ValueError("a callback needs a secret to sign with")
        self._keys = [key_of(secret) for secret in secrets[:ROTATING]]

    def headers(self, notice_id: UUID, body: bytes, now_at: int) -> dict[str, str]:
        """The headers of one try at `now_at` (UTC ms)."""
        shown_id, moment = webhook_id(notice_id), str(now_at // 1000)
        signed = f"{shown_id}.{moment}.".encode("ascii") + body
        return {
            "webhook-id": shown_id,
            "webhook-timestamp": moment,
            "webhook-signature": " ".join(
                "v1," + b64encode(hmac.digest(key, signed, hashlib.sha256)).decode("ascii") for key in self._keys
            ),
        }


def key_of(secret: str) -> bytes:
    """The key of a secret as it is written; raises ValueError where it is empty."""
    text = secret.removeprefix(_PREFIX)
    try:
        key = b64decode(text)  # as the receivers' libraries read it
    except (binascii.Error, ValueError):
        key = secret.encode()
    if not key:
        raise ValueError("a callback secret is empty")
    return key
