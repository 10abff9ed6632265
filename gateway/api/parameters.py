"""What calls take in their query strings, and the cursors of their pages; everything that is wrong is told at once."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Mapping
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl
from uuid import UUID

from gateway.admission import instants, numbering
from gateway.admission.fields import FieldFault, pointer_part
from gateway.api.desk import TenantRef
from gateway.api.exchange import Exchange

T = TypeVar("T", bound=Mapping[str, Any])
LIMIT_DEFAULT, LIMIT_MAX = 50, 200
_CURSOR_MAC: Final = 12


def parameters(exchange: Exchange, known: Collection[str]) -> tuple[dict[str, str], list[FieldFault]]:
    """The query's parameters by name, and what is wrong with their names; the pointer is the name."""
    faults: list[FieldFault] = []
    found: dict[str, str] = {}
    query: bytes = exchange.scope.get("query_string", b"")
    if not query:
        return found, faults
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=50)
    except ValueError:
        return found, [FieldFault("", "the query string cannot be read")]
    for name, value in pairs:
        if name not in known:
            faults.append(FieldFault(f"/{pointer_part(name)}", "is not a parameter of this call"))
        elif name in found:
            faults.append(FieldFault(f"/{name}", "stands twice"))
        found[name] = value
    return found, faults


def instant(values: Mapping[str, str], name: str, faults: list[FieldFault]) -> int | None:
    """An instant in RFC 3339 form, UTC ms; None where it is not given."""
    if name not in values:
        return None
    # The plus sign of a zone that was not escaped arrives as a blank.
    at = instants.read(values[name][:64]) or instants.read("+".join(values[name][:64].rsplit(" ", 1)))
    if at is None:
        faults.append(FieldFault(f"/{name}", "must be an instant in RFC 3339 form with a zone"))
    return at


def limit(values: Mapping[str, str], faults: list[FieldFault]) -> int:
    """How many entries a page may have."""
    text = values.get("limit", str(LIMIT_DEFAULT))
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= LIMIT_MAX):
        faults.append(FieldFault("/limit", f"must be a whole number from 1 to {LIMIT_MAX}"))
        return LIMIT_DEFAULT
    return int(text)


def number(text: str, *, accept_00_prefix: bool) -> str | None:
    """A number in a path or query in E.164 form; a plus sign that was not escaped arrives there as a blank."""
    written = "+" + text[1:] if text.startswith(" ") else text
    return numbering.normalise(written[:64], accept_00_prefix=accept_00_prefix)


class Cursors:
    """The cursors of one list: where a page goes on, bound to the tenant and useless to others."""

    def __init__(self, pepper: bytes, name: str) -> None:
        self._key = pepper[:64]
        self._name = name.encode()

    def write(self, tenant: TenantRef, last_id: UUID) -> str:
        """The cursor behind an entry."""
        return urlsafe_b64encode(last_id.bytes + self._mac(tenant, last_id.bytes)).decode("ascii").rstrip("=")

    def page(self, tenant: TenantRef, rows: list[T], size: int) -> tuple[list[T], str | None]:
        """The rows of a page and where the next begins; `rows` holds one more than `size` where there is one."""
        page = rows[:size]
        return page, self.write(tenant, page[-1]["id"]) if len(rows) > size else None

    def read(self, tenant: TenantRef, values: Mapping[str, str], faults: list[FieldFault]) -> UUID | None:
        """The entry that the parameter `cursor` names; None where there is none."""
        if "cursor" not in values:
            return None
        try:
            octets = urlsafe_b64decode(values["cursor"][:64].encode("ascii") + b"=" * (-len(values["cursor"]) % 4))
        except ValueError:
            octets = b""
        last, mac = octets[:16], octets[16:]
        if len(octets) != 16 + _CURSOR_MAC or not compare_digest(mac, self._mac(tenant, last)):
            faults.append(FieldFault("/cursor", "is not a cursor of this list"))
            return None
        return UUID(bytes=last)

    def _mac(self, tenant: TenantRef, last: bytes) -> bytes:
        content = self._name + tenant.id.to_bytes(8, "big") + last
        return blake2b(content, digest_size=_CURSOR_MAC, key=self._key).digest()
