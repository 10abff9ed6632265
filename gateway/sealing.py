"""Texts at rest: AES-256-GCM under keys that have ids, so that a key can be changed while messages live.

Every text gets a key of its own, made from the data key and 16 random octets (BLAKE2b, keyed): the bound of AES-GCM on
texts per key (NIST SP 800-38D, 8.3) is then never met. What a text belongs to is authenticated with it, so that a
sealed text moved into another row does not open.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_SIZE: Final = 32
_SALT_SIZE: Final = 16
_NONCE: Final = bytes(12)  # each key seals one text
_CHECKED: Final = b"sluicegate data key"
_FORM: Final = 1
_FINGERPRINT: Final = b"fingerprint"  # keeps these apart from the keys of texts
_HEX = re.compile(r"^[0-9a-fA-F]{64}$")


class KeyUnreadable(ValueError):
    """What was given is not a data key; the text says what one looks like and holds nothing of it."""


class SealBroken(Exception):
    """A text does not open: its key is not among ours, it was changed, or it belongs to another row."""


class Sealer:
    """Seals under the newest key and opens under every key that it holds."""

    def __init__(self, keys: Mapping[int, bytes], current: int) -> None:
        self._keys = dict(keys)
        self._current = current

    @property
    def current(self) -> int:
        """Id of the key that new texts are sealed under."""
        return self._current

    def knows(self, key_id: int) -> bool:
        """Whether texts under a key can be opened here (0: not sealed)."""
        return key_id == 0 or key_id in self._keys

    def seal(self, text: bytes, about: bytes) -> bytes:
        """A text under the current key; `about` is what it belongs to."""
        salt = os.urandom(_SALT_SIZE)
        return salt + _cipher(self._keys[self._current], salt).encrypt(_NONCE, text, about)

    def open(self, key_id: int, sealed: bytes, about: bytes) -> bytes:
        """The text again; raises SealBroken. Key 0 stands for rows written before texts were sealed."""
        if key_id == 0:
            return sealed
        key = self._keys.get(key_id)
        if key is None:
            raise SealBroken(f"data key {key_id} is not among those of this process")
        salt, body = sealed[:_SALT_SIZE], sealed[_SALT_SIZE:]
        try:
            return _cipher(key, salt).decrypt(_NONCE, body, about)
        except (InvalidTag, ValueError):
            raise SealBroken("a sealed text does not open") from None

    def fingerprint(self, octets: bytes) -> bytes:
        """By which the same octets are recognised while the key stays: what they were cannot be found by trying."""
        return blake2b(octets, digest_size=32, key=self._keys[self._current], person=_FINGERPRINT).digest()

    def wrap(self, octets: bytes, about: bytes) -> bytes:
        """Like `seal`, for columns without a key id beside them: the id comes first."""
        return bytes((_FORM,)) + self._current.to_bytes(2, "big") + self.seal(octets, about)

    def unwrap(self, wrapped: bytes, about: bytes) -> bytes:
        """What `wrap` took; raises SealBroken."""
        if wrapped[:1] != bytes((_FORM,)):
            raise SealBroken("an unknown form of sealed octets")
        return self.open(int.from_bytes(wrapped[1:3], "big"), wrapped[3:], about)


def about_message(tenant_id: int, message_id: UUID) -> bytes:
    """What the text of a message belongs to."""
    return tenant_id.to_bytes(4, "big", signed=True) + message_id.bytes


def about_provider(provider: str) -> bytes:
    """What a received PDU belongs to, as long as nobody has looked into it."""
    return b"received " + provider.encode("utf-8")


def read_key(given: str) -> bytes:
    """A data key from its setting: 32 octets in hex or base64; raises KeyUnreadable."""
    given = given.strip()
    try:
        key = bytes.fromhex(given) if _HEX.match(given) else base64.b64decode(given, validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_SIZE:
        raise KeyUnreadable("a data key is 32 octets in base64 or hex: make one with `openssl rand -base64 32`")
    return key


def check_value(key: bytes) -> bytes:
    """By what a key is recognised without being kept."""
    return hmac.digest(key, _CHECKED, "sha256")[:16]


def _cipher(key: bytes, salt: bytes) -> AESGCM:
    return AESGCM(blake2b(salt, digest_size=KEY_SIZE, key=key).digest())
