"""Signatures that any Standard Webhooks library verifies."""

from __future__ import annotations

import time
from uuid import uuid4

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from gateway.callbacks.signing import Signer

OLD, NEW = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2Vjb25kLXNlY3JldC1mb3Itcm90YXRpb24tMDE="
BODY = '{"type":"message.delivered","data":{"from":"Caf\u00e9"}}'.encode()


def now_at() -> int:
    return int(time.time() * 1000)


@pytest.mark.parametrize("secret", [OLD, NEW])
def test_both_secrets_verify_during_a_rotation(secret: str) -> None:
    headers = Signer([NEW, OLD]).headers(uuid4(), BODY, now_at())
    assert Webhook(secret).verify(BODY, headers)["type"] == "message.delivered"
    assert headers["webhook-signature"].count("v1,") == 2


def test_the_id_is_stable_and_the_timestamp_moves() -> None:
    notice, signer = uuid4(), Signer([OLD])
    first, second = signer.headers(notice, BODY, 1_000_000), signer.headers(notice, BODY, 9_000_000)
    assert first["webhook-id"] == second["webhook-id"]
    assert (first["webhook-timestamp"], second["webhook-timestamp"]) == ("1000", "9000")


def test_a_changed_body_does_not_verify() -> None:
    headers = Signer([OLD]).headers(uuid4(), BODY, now_at())
    with pytest.raises(WebhookVerificationError):
        Webhook(OLD).verify(BODY.replace(b"delivered", b"expired!!"), headers)


def test_a_secret_that_is_not_base64_signs_as_it_stands() -> None:
    headers = Signer(["not base64!"]).headers(uuid4(), BODY, now_at())
    assert Webhook(b"not base64!").verify(BODY, headers)


@pytest.mark.parametrize("secrets", [[], [""], [OLD, ""]])
def test_no_secret_is_refused(secrets: list[str]) -> None:
    with pytest.raises(ValueError):
        Signer(secrets)
