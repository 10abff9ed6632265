"""Signatures of callbacks in the form of Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`."""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from standardwebhooks.webhooks import Webhook

ROTATING = 2  # so many secrets are valid at once during a rotation


def webhook_id(of: UUID) -> str:
    """The `webhook-id` of a notice: the same over all its tries."""
    return "evt_" + of.hex


class Signer:
    """Signs for one endpoint with each of its secrets (`whsec_` base64, or any text where it is not base64).

    Raises ValueError where there is no secret, or an empty one.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        if not secrets or not all(secrets):
            raise ValueError("a callback needs a secret to sign with")
        self._keys = [_key(secret) for secret in secrets[:ROTATING]]

    def headers(self, notice_id: UUID, body: bytes, now_at: int) -> dict[str, str]:
        """The headers of one try at `now_at` (UTC ms)."""
        shown_id = webhook_id(notice_id)
        moment = datetime.fromtimestamp(now_at // 1000, UTC)
        text = body.decode()
        return {
            "webhook-id": shown_id,
            "webhook-timestamp": str(now_at // 1000),
            "webhook-signature": " ".join(key.sign(shown_id, moment, text) for key in self._keys),
        }


def _key(secret: str) -> Webhook:
    try:
        return Webhook(secret)
    except (binascii.Error, ValueError):
        return Webhook(secret.encode())
    except Exception as error:  # the library's own error of an empty secret has no public base
        raise ValueError("a callback secret is empty") from error
