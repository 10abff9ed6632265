"""Section `providers`: carriers, how they speak SMPP, and the binds to them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gateway.policy.rules import scalars
from gateway.policy.rules.document import Section
from gateway.policy.rules.scalars import BadValue, duration_ms, share
from gateway.policy.rules.snapshot import (
    Breaker,
    Dialect,
    Provider,
    Ramp,
    Session,
    StatusOverride,
    TlsFiles,
    VendorTlv,
)
from gateway.policy.rules.traffic import check_backoff

# C-octet strings of SMPP 3.4, section 4.1, without their NUL
SYSTEM_ID_MAX = 15
PASSWORD_MAX = 8
SYSTEM_TYPE_MAX = 12
SERVICE_TYPE_MAX = 5

TLV_LENGTH_MAX = 255  # of a message's value at the door
WINDOW_MAX = 10_000
ADDRESS_KINDS = ("alphanumeric", "short_code", "numeric", "international", "destination")
_TON_NPI_MAX = 255
ESM_CLASS_MAX = 0x3F
_OWN_TAGS = {0x0204, 0x020C, 0x020E, 0x020F, 0x0424}  # set by the gateway itself
_DEFAULT = Dialect()


def read_providers(root: Section) -> Mapping[str, Provider]:
    """All carriers; at least one."""
    section = root.section("providers")
    providers = {name: _read_provider(inner, name) for name, inner in section.named(scalars.name)}
    section.finish()
    if not providers:
        section.lacks("expects at least one provider")
    _check_session_names(section, providers)
    return MappingProxyType(providers)


def _check_session_names(section: Section, providers: Mapping[str, Provider]) -> None:
    owners: dict[str, str] = {}
    for provider in providers.values():
        for name in provider.sessions:
            if name in owners:
                sessions = section.section(provider.name).section("sessions")
                sessions.fault(f"is a session of {owners[name]} too: names are unique over all providers", name)
            owners.setdefault(name, provider.name)


def _read_provider(section: Section, name: str) -> Provider:
    sessions = section.section("sessions")
    provider = Provider(
        name=name,
        limits=section.limit("limits", None),
        dialect=_read_dialect(section.section("dialect")),
        sessions=MappingProxyType({key: _read_session(one, key, name) for key, one in sessions.named(scalars.name)}),
        breaker=_read_breaker(section.section("breaker")),
        ramp=_read_ramp(section.section("ramp")),
    )
    sessions.finish()
    if not provider.sessions:
        section.lacks("expects at least one session", "sessions")
    section.finish()
    return provider


def _read_session(section: Section, name: str, provider: str) -> Session:
    reconnect = section.section("reconnect")
    session = Session(
        name=name,
        provider=provider,
        host=section.required("host", "", _host),
        port=section.number("port", 2775, 1, 65_535),
        tls=_read_tls(section),
        system_id=section.required("system_id", "", lambda text: scalars.c_octets(text, SYSTEM_ID_MAX)),
        password=section.required("password", "", lambda text: scalars.secret(text, PASSWORD_MAX)),
        system_type=section.value("system_type", "", lambda text: scalars.c_octets(text, SYSTEM_TYPE_MAX)),
        bind=section.choice("bind", "transceiver", ("transceiver", "transmitter", "receiver")),
        window=section.number("window", 10, 1, WINDOW_MAX),
        limits=section.limit("limits", None),
        enquire_link_ms=_positive(section, "enquire_link", 15_000),
        response_timeout_ms=_positive(section, "response_timeout", 10_000),
        inactivity_ms=_positive(section, "inactivity", 60_000),
        reconnect_base_ms=reconnect.value("base", 1_000, duration_ms),
        reconnect_max_ms=reconnect.value("max", 30_000, duration_ms),
    )
    check_backoff(reconnect, session.reconnect_base_ms, session.reconnect_max_ms)
    reconnect.finish()
    section.finish()
    return session


def _positive(section: Section, key: str, default: int) -> int:
    found = section.value(key, default, duration_ms)
    if found < 1:
        section.fault("expects more than 0", key)
    return found


def _host(text: str) -> str:
    if not text or len(text) > 253 or any(char.isspace() or not char.isprintable() for char in text):
        raise BadValue("expects a host name or address")
    return text


def _read_tls(section: Section) -> TlsFiles | None:
    if not section.has("tls") or section.is_null("tls"):
        return None
    inner = section.section("tls")
    files = TlsFiles(
        ca=inner.value("ca", None, _file),
        cert=inner.value("cert", None, _file),
        key=inner.value("key", None, _file),
        verify=inner.flag("verify", True),
    )
    inner.finish()
    if (files.cert is None) != (files.key is None):
        inner.fault("cert and key belong together")
    return files


def _file(text: str) -> str | None:
    return scalars.file_reference(text)


def _read_dialect(section: Section) -> Dialect:
    dialect = Dialect(
        long_messages=section.choice("long_messages", _DEFAULT.long_messages, ("udh8", "udh16", "sar", "payload")),
        default_alphabet=section.choice("default_alphabet", _DEFAULT.default_alphabet, ("gsm7", "latin1", "ascii")),
        validity_period=section.choice("validity_period", _DEFAULT.validity_period, ("relative", "absolute", "omit")),
        receipt_ids=section.choice(
            "receipt_ids", _DEFAULT.receipt_ids, ("as_is", "hex_to_decimal", "decimal_to_hex", "case_insensitive")
        ),
        receipt_dates=section.choice(
            "receipt_dates",
            _DEFAULT.receipt_dates,
            ("auto", "yymmddhhmm", "yymmddhhmmss", "yyyymmddhhmm", "yyyymmddhhmmss", "epoch"),
        ),
        timezone=section.value("timezone", _DEFAULT.timezone, scalars.zone),
        own_reference=section.value("own_reference", _DEFAULT.own_reference, _own_reference),
        register=section.choice("register", _DEFAULT.register, ("final", "all", "none")),
        tlvs=_read_tlvs(section.section("tlvs")),
        national_shift=section.choice(
            "national_shift", _DEFAULT.national_shift, ("none", "auto", "turkish", "spanish", "portuguese")
        ),
        address=_read_address(section.section("address")),
        service_type=section.value("service_type", "", lambda text: scalars.c_octets(text, SERVICE_TYPE_MAX)),
        status_overrides=_read_overrides(section.section("status_overrides")),
        esm_class=section.value("esm_class", _DEFAULT.esm_class, _esm_class),
        unflagged_receipts=section.flag("unflagged_receipts", _DEFAULT.unflagged_receipts),
    )
    section.finish()
    _check_own_tag(section, dialect)
    return dialect


def _check_own_tag(section: Section, dialect: Dialect) -> None:
    if not dialect.own_reference.startswith("tlv:"):
        return
    own = scalars.tag(dialect.own_reference[4:])
    for name, rule in dialect.tlvs.items():
        if rule.tag == own:
            section.fault(f"is the tag of {name} too", "own_reference")


def _esm_class(text: str) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        value = -1
    if not 0 <= value <= ESM_CLASS_MAX:
        raise BadValue("expects mode and type bits from 0x00 to 0x3F, such as 0x03 for store and forward")
    return value


def _own_reference(text: str) -> str:
    if text in ("none", "user_message_reference"):
        return text
    if text.startswith("tlv:"):
        if scalars.tag(text[4:]) in _OWN_TAGS:
            raise BadValue("expects a tag that the gateway does not set itself")
        return text
    raise BadValue("expects none, user_message_reference, or tlv: and a tag such as tlv:0x1401")


def _read_tlvs(section: Section) -> Mapping[str, VendorTlv]:
    found: dict[str, VendorTlv] = {}
    tags: dict[int, str] = {}
    for name, inner in section.named(scalars.name):
        tag = inner.required("tag", 0, scalars.tag)
        kind = inner.choice("type", "c_octet", ("c_octet", "octets", "int8", "int16", "int32"))
        length_max = inner.number("max", TLV_LENGTH_MAX, 1, TLV_LENGTH_MAX)
        inner.finish()
        if tag in _OWN_TAGS:
            inner.fault("is set by the gateway itself", "tag")
        elif tag and tag in tags:
            inner.fault(f"is the tag of {tags[tag]} too", "tag")
        tags.setdefault(tag, name)
        found[name] = VendorTlv(tag, kind, length_max)
    section.finish()
    return MappingProxyType(found)


def _read_address(section: Section) -> Mapping[str, Mapping[str, int]]:
    """TON and NPI (SMPP 3.4, 5.2.5 and 5.2.6) per kind of address, where a carrier wants other than the usual ones.

    `plus: true` keeps the plus sign in front of E.164 numbers (1 in the snapshot).
    """
    found: dict[str, Mapping[str, int]] = {}
    for kind in ADDRESS_KINDS:
        if not section.has(kind) or section.is_null(kind):
            continue
        inner = section.section(kind)
        numbers = {key: inner.number(key, 0, 0, _TON_NPI_MAX) for key in ("ton", "npi") if inner.has(key)}
        if kind in ("international", "destination") and inner.flag("plus", False):
            numbers["plus"] = 1
        inner.finish()
        found[kind] = MappingProxyType(numbers)
    section.finish()
    return MappingProxyType(found)


def _read_overrides(section: Section) -> Mapping[int, StatusOverride]:
    found: dict[int, StatusOverride] = {}
    for text, inner in section.named(scalars.command_status):
        status = scalars.command_status(text)
        retry = inner.required("retry", "never", _retry)
        delay_ms = inner.value("delay", None, _delay)
        inner.finish()
        if status in found:
            section.fault("is the status of another entry too", text)
        found[status] = StatusOverride(retry, delay_ms)
    section.finish()
    return MappingProxyType(found)


def _retry(text: str) -> str:
    if text not in ("throttle", "later", "never", "hold"):
        raise BadValue("expects one of throttle, later, never, hold")
    return text


def _delay(text: str) -> int | None:
    return duration_ms(text)


def _read_breaker(section: Section) -> Breaker:
    default = Breaker()
    found = Breaker(
        errors=section.value("errors", default.errors, share),
        of=section.number("of", default.of, 1, 100_000),
        within_ms=_positive(section, "within", default.within_ms),
        probe_after_ms=_positive(section, "probe_after", default.probe_after_ms),
    )
    section.finish()
    return found


def _read_ramp(section: Section) -> Ramp:
    default = Ramp()
    found = Ramp(
        start=section.value("start", default.start, share),
        double_every_ms=_positive(section, "double_every", default.double_every_ms),
    )
    section.finish()
    return found
