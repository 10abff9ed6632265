"""What would change between two policies, in words; no literal password or secret, no query of a URL is shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from gateway.policy.rules.scalars import is_reference
from gateway.policy.rules.snapshot import Limit, Policy, SendWindow

_SINGULAR = {
    "classes": "class",
    "tenants": "tenant",
    "destinations": "destination",
    "providers": "provider",
    "routes": "route",
    "sessions": "session",
    "senders": "sender",
    "applications": "application",
    "tlvs": "TLV",
    "status_overrides": "status override",
}
_SECRET_FIELDS = frozenset({"password", "secrets"})
_NAMES = frozenset({"name", "version"})


def describe(old: Policy | None, new: Policy) -> list[str]:
    """One sentence per change, in the order of the file; empty where both mean the same."""
    if old is None:
        routes, providers = len(new.routes), len(new.providers)
        return [f"first policy: {providers} provider(s), {routes} route(s), {len(new.tenants)} tenant(s)"]
    return list(_changes("", old, new))


def _changes(path: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        yield from _entries(path, old, new)
    elif is_dataclass(old) and type(old) is type(new) and not isinstance(old, (Limit, SendWindow)):
        for field in fields(old):
            if field.name not in _NAMES:
                inner = f"{path}.{field.name}" if path else field.name
                yield from _changes(inner, getattr(old, field.name), getattr(new, field.name))
    elif old != new:
        yield _change(path, old, new)


def _entries(path: str, old: Mapping[Any, Any], new: Mapping[Any, Any]) -> Iterator[str]:
    kind = path.rpartition(".")[2]
    word = _SINGULAR.get(kind, kind)
    parent = path.rpartition(".")[0]
    where = f" of {parent}" if parent else ""
    for name in old:
        if name not in new:
            yield f"{word} {_name(name)}{where} is removed"
    for name, value in new.items():
        if name not in old:
            yield f"{word} {_name(name)}{where} is added{_detail(value)}"
        else:
            yield from _changes(f"{path}.{_name(name)}", old[name], value)


def _change(path: str, old: Any, new: Any) -> str:
    if path.rpartition(".")[2] in _SECRET_FIELDS:
        shown = _reference(new)
        return f"{path} changes{f' to {shown}' if shown else ''}"
    if path.endswith(".callbacks.url"):
        old, new = _bare(old), _bare(new)
        if old == new:
            return f"{path} changes behind its path (not shown: it may hold a token)"
    if old is None:
        return f"{path} is set to {_show(new)}"
    if new is None:
        return f"{path} is lifted (was {_show(old)})"
    return f"{path} changes from {_show(old)} to {_show(new)}"


def _detail(value: Any) -> str:
    return f" with {_show(value)}" if isinstance(value, Limit) else ""


def _reference(value: Any) -> str | None:
    values = value if isinstance(value, tuple) else (value,)
    return ", ".join(values) if values and all(isinstance(one, str) and is_reference(one) for one in values) else None


def _bare(url: str | None) -> str | None:
    """A URL without its query and fragment: tokens stand there."""
    if url is None:
        return None
    return urlunsplit(urlsplit(url)._replace(query="", fragment="")) + ("?..." if "?" in url else "")


def _name(name: Any) -> str:
    return f"0x{name:02X}" if isinstance(name, int) else str(name)


def _show(value: Any) -> str:
    match value:
        case Limit(rate_per_s=rate, burst=burst):
            return f"{rate:g}/s, burst {burst}"
        case SendWindow():
            start, end = (f"{minute // 60:02}:{minute % 60:02}" for minute in (value.from_minute, value.to_minute))
            return f"{start} to {end} {value.timezone} for {', '.join(sorted(value.classes))}"
        case bool():
            return "yes" if value else "no"
        case frozenset() | tuple():
            return ", ".join(sorted(map(str, value))) or "nothing"
        case None:
            return "nothing"
        case _ if is_dataclass(value):
            return "own rules"
        case Mapping():
            return ", ".join(map(_name, value)) or "nothing"
    return str(value)
