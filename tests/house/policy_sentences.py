"""One sentence per field of the policy file, for `docs/policy-reference.md`; the readers tell the rest."""

from __future__ import annotations

from typing import Final

INTRODUCTION: Final = """
# Policy reference

Drawn from the code that reads the file (`python -m tests.house.policy_reference`); a test keeps it current.
[`policy.example.yaml`](../policy.example.yaml) has every field in its place, [Operations](operations.md) tells how a
policy is checked, applied and taken back, [Connect a carrier](connect-a-carrier.md) how the dialect is found out.

Only `providers` and `routes` must be there. An unknown key, a value out of range or a name that nothing has is a fault;
all faults are told at once, by line and path, and a file with a fault changes nothing.

- **A limit** is `{rate_per_s: 50, burst: 100}`: segments (submit_sm) per second, fractions allowed, and how many may
  leave at once after a pause. A burst left out is one second's worth. `null` lifts a limit that would be inherited.
- **A duration** is a number and its unit: `500ms`, `10s`, `2m`, `4h`, `3d`.
- **A secret** is `env:NAME` or `file:PATH`, read by the processes that use it, or the text itself. `hidden:7.2` in a
  text that was shown stands for the second secret that version 7 writes out.
"""

SECTIONS: Final[dict[str, tuple[str, str]]] = {
    "classes.CLASS": (
        "Classes: `classes.CLASS`",
        "What each class of traffic is promised. The four classes are `otp`, `transactional`, `marketing` and"
        " `non_priority`; a field left out keeps its class's default.",
    ),
    "retries": ("Retries: `retries`", "How submits that a carrier refused for now are repeated."),
    "tenant_defaults": (
        "What tenants have that say nothing: `tenant_defaults`",
        "The same fields as a tenant's, without senders, applications and callbacks.",
    ),
    "tenants.TENANT": (
        "Tenants: `tenants.TENANT`",
        "Accounts exist in the database; one that is named here and missing there is created. What is left out comes"
        " from `tenant_defaults`.",
    ),
    "destinations.DESTINATION": (
        "Destinations: `destinations.DESTINATION`",
        "Groups of numbers with limits or hours of their own; the longest prefix that fits decides.",
    ),
    "providers.PROVIDER": ("Providers: `providers.PROVIDER`", "Carriers: limits, breaker and ramp."),
    "providers.PROVIDER.dialect": (
        "Dialects: `providers.PROVIDER.dialect`",
        "How a carrier speaks SMPP; [Connect a carrier](connect-a-carrier.md) has an example for each.",
    ),
    "providers.PROVIDER.sessions.SESSION": (
        "Sessions: `providers.PROVIDER.sessions.SESSION`",
        "Binds to a carrier. Names are unique over all providers.",
    ),
    "routes.ROUTE": (
        "Routes: `routes.ROUTE`",
        "The way to a carrier. Of the routes that match, the longest prefix comes first, then the lowest preference,"
        " then a draw by weight. `match: {}` takes everything.",
    ),
    "inbound": ("Inbound: `inbound`", "What handsets write."),
    "receipts": ("Receipts: `receipts`", "How long a carrier's word is waited for."),
    "privacy": ("Privacy: `privacy`", "How long texts and numbers stay readable ([more](privacy.md))."),
    "callbacks": ("Callbacks: `callbacks`", "How tenants' endpoints are called ([more](receive-callbacks.md))."),
}

_TENANT: Final = {
    "weight": "Share among tenants inside a class.",
    "limits": "Pace towards carriers, over all routes.",
    "requests": "Messages per second at the door, all keys together; beyond it 429 `quota.rate`.",
    "daily_segments": "Accepted segments per UTC day; beyond it 429 `quota.daily`.",
    "classes": "Classes that the tenant may use.",
    "default_class": "Class of a message that names none.",
    "default_sender": "Sender of a message that names none.",
    "destinations": "Allow list of prefixes; left out: all.",
    "accept_00_prefix": "Whether `0039…` is read as `+39…`.",
    "inbound_numbers": "Numbers and short codes whose texts are this tenant's; each belongs to one tenant.",
    "tlvs": "Vendor TLVs (named in a dialect) that its messages may carry.",
}
_DIALECT: Final = {
    "long_messages": "How parts of a long text are tied together: UDH with 8 or 16 bits, SAR TLVs, or message_payload.",
    "default_alphabet": "What data_coding 0 means to the carrier.",
    "validity_period": "How the time that is left goes to the carrier.",
    "receipt_ids": "How an id in a receipt differs from the one in the answer.",
    "receipt_dates": "The form of dates in the receipt's text.",
    "timezone": "The zone of the dates in receipts.",
    "own_reference": "Where our own id travels, if the carrier gives it back in receipts.",
    "register": "Which receipts are asked for; with `none` a message is final once it is sent.",
    "tlvs.TLV.tag": "The tag on the wire.",
    "tlvs.TLV.type": "How the value is written.",
    "tlvs.TLV.max": "Longest value that the door takes.",
    "national_shift": "National tables of the GSM alphabet: used only where they save a part.",
    "address.KIND.ton": "Type of number for a kind of address (`alphanumeric`, `short_code`, `numeric`, `international`, `destination`).",  # noqa: E501
    "address.KIND.npi": "Numbering plan for that kind.",
    "address.KIND.plus": "Keep the plus sign (only `international` and `destination`).",
    "service_type": "service_type of every submit_sm.",
    "status_overrides.STATUS.retry": "What a command_status means with this carrier.",
    "status_overrides.STATUS.delay": "Least time before such a message is tried again.",
    "esm_class": "Mode and type bits of every submit_sm.",
    "unflagged_receipts": "Whether receipts come without a flag in esm_class.",
}
_SESSION: Final = {
    "host": "Name or address of the SMSC.",
    "port": "Its port.",
    "tls.ca": "Authority that signed the carrier's certificate; left out: the system's.",
    "tls.cert": "Our certificate, where the carrier asks for one.",
    "tls.key": "The key of our certificate.",
    "tls.verify": "Whether the carrier's certificate and name are checked.",
    "system_id": "Account, up to 15 characters.",
    "password": "Secret of at most 8 characters.",
    "system_type": "As the carrier says.",
    "bind": "Kind of bind.",
    "window": "Submits that may be unanswered at once.",
    "limits": "Pace of this bind alone.",
    "enquire_link": "Silence after which the link is asked whether it lives.",
    "response_timeout": "Longest wait for an answer; after it the submit is in doubt.",
    "inactivity": "Silence after which the link counts as dead.",
    "reconnect.base": "First pause before connecting again (full jitter).",
    "reconnect.max": "Longest such pause.",
}
SENTENCES: Final[dict[str, str]] = {
    "classes.CLASS.wait_budget": "How long a message may wait before its first submit begins; then it is `expired` (`wait_budget`).",  # noqa: E501
    "classes.CLASS.door_share": "The door closes at this share of the budget, so that what was promised survives a fall of capacity.",  # noqa: E501
    "classes.CLASS.ttl.default": "How long a message is useful where it does not say.",
    "classes.CLASS.ttl.max": "The longest that it may say; beyond it 422 `policy.ttl`.",
    "classes.CLASS.weight": "Share of the capacity while several classes wait.",
    "classes.CLASS.quantum": "Messages taken from a flow in one turn.",
    "classes.CLASS.when_full": "What the door does beyond its limit: say 503, or accept for later.",
    "classes.CLASS.unconfirmed": "What happens to a submit whose answer was lost: wait for word, send once more (flagged), or fail.",  # noqa: E501
    "classes.CLASS.max_attempts": "Submits that a message may cost.",
    "classes.CLASS.content.max_segments": "Longest message of the class, in parts.",
    "classes.CLASS.consent": "Which list is heeded: opted-out numbers are left out, or only opted-in ones are written to.",  # noqa: E501
    "retries.base": "First back-off; it doubles with each attempt, with full jitter.",
    "retries.max": "Longest back-off.",
    "retries.share": "Share of the first attempts' rate that retries may use: of the rate before while nothing else waits.",  # noqa: E501
    **{f"tenant_defaults.{name}": text for name, text in _TENANT.items()},
    **{f"tenants.TENANT.{name}": text for name, text in _TENANT.items()},
    "tenants.TENANT.senders.SENDER.limits": "Allowed senders, each with a limit of its own where given; left out: any sender.",  # noqa: E501
    "tenants.TENANT.applications.APPLICATION.limits": "Applications (campaigns) with a pace of their own.",
    "tenants.TENANT.callbacks.url": "Where its callbacks go.",
    "tenants.TENANT.callbacks.secrets": "Secrets they are signed with; two during a rotation.",
    "tenants.TENANT.callbacks.events": "What it is told.",
    "tenants.TENANT.callbacks.allow_private": "Whether the address may be private, loopback or link-local.",
    "destinations.DESTINATION.prefixes": "First digits of its numbers; at least one.",
    "destinations.DESTINATION.limits": "Pace towards all its numbers together.",
    "destinations.DESTINATION.per_number": "Pace towards each single number.",
    "destinations.DESTINATION.send_window.classes": "Classes that keep these hours.",
    "destinations.DESTINATION.send_window.from": "From when they are sent.",
    "destinations.DESTINATION.send_window.to": "Until when; a message that would come later waits for the next day.",
    "destinations.DESTINATION.send_window.timezone": "Whose clock.",
    "providers.PROVIDER.limits": "Pace of all its sessions together.",
    "providers.PROVIDER.breaker.errors": "Share of errors at which nothing more is sent for a while.",
    "providers.PROVIDER.breaker.of": "Of at least so many answers.",
    "providers.PROVIDER.breaker.within": "Within this time.",
    "providers.PROVIDER.breaker.probe_after": "When a single message tries again.",
    "providers.PROVIDER.ramp.start": "Share of its rate that a fresh bind begins with.",
    "providers.PROVIDER.ramp.double_every": "Time in which that share doubles.",
    **{f"providers.PROVIDER.dialect.{name}": text for name, text in _DIALECT.items()},
    **{f"providers.PROVIDER.sessions.SESSION.{name}": text for name, text in _SESSION.items()},
    "routes.ROUTE.match.prefixes": "First digits of the numbers it takes; left out: all.",
    "routes.ROUTE.match.classes": "Classes it takes; left out: all.",
    "routes.ROUTE.match.tenants": "Tenants it takes; left out: all.",
    "routes.ROUTE.match.senders": "Senders it takes; left out: all.",
    "routes.ROUTE.provider": "A provider of this file.",
    "routes.ROUTE.limits": "Pace of this route.",
    "routes.ROUTE.preference": "Lower comes first; the next one is taken when a route cannot send.",
    "routes.ROUTE.weight": "Share among routes of the same preference.",
    "inbound.stop_words": "Words that put a number on the stop list.",
    "inbound.start_words": "Words that take it off.",
    "inbound.join_timeout": "How long missing parts of a long text are waited for.",
    "receipts.cutoff": "After this a sent message without a final receipt is `unknown`; a later one corrects it.",
    "receipts.inbox_retention": "How long receipts are kept, matched or not.",
    "privacy.keep_text": "How long texts are kept after the end of a message.",
    "privacy.keep_otp_text": "The same for class `otp`.",
    "privacy.hash_numbers_after": "When numbers become tokens.",
    "privacy.keep_messages": "When whole days of messages are dropped.",
    "privacy.log_numbers": "Whether logs show numbers or tokens.",
    "callbacks.give_up": "How long a callback is tried.",
    "callbacks.timeout": "Longest single try.",
    "callbacks.per_endpoint": "Tries at once towards one endpoint.",
}
