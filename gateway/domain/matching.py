"""Which message a receipt speaks of: pure choices, by carrier id or else by address (design section 4)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import date
from typing import Final
from uuid import UUID

from scheduler.core.values import valueclass

YOUNG_MS: Final = 10_000
YOUNG_EVERY_MS: Final = 200
FIRST_BACK_OFF_MS: Final = 1_000
LAST_BACK_OFF_MS: Final = 6 * 3_600_000
# Fewer digits than this do not name a handset: a short code, or zeros that a carrier echoes.
_TELLING_DIGITS: Final = 7
# A receipt is matched by its address only once its carrier id had this long to be stored by the answer's own road.
FAIR_CHANCE_MS: Final = 2_000
# Carriers tell whole minutes on clocks of their own.
_CARRIER_CLOCK_MS: Final = 5 * 60_000
# Our own instants are of one clock, measured in several processes.
_OWN_CLOCK_MS: Final = 1_000
# That clock may have jumped between a submit and its receipt; beyond this the receipt is older than the submit.
_JUMP_MS: Final = 5 * 60_000
# A receipt this long after the only submit that its id names may as well be of a newer one, whose answer is still out.
_STALE_MS: Final = 3_600_000
_FULL_REFERENCE_DIGITS: Final = 32
_CROWDED_MS: Final = 5_000
_ID_DIGITS_MAX: Final = 64
# +52 1 (Mexico, until 2019), +54 9 (Argentina), the 9 behind the area code (Brazil): the rest is the same without it.
_MOBILE_MARK: Final = re.compile(r"(52)1(\d{10})|(54)9(\d{10})|(55\d\d)9(\d{8})")


@valueclass
class Candidate:
    """An accepted part that carries the id in question; `recipient` is '' where its owner asked to be forgotten."""

    day: date
    message_id: UUID
    slot: int
    part: int
    recipient: str
    sent_at: int


@valueclass
class Asked:
    """What a receipt tells of its message besides the id. `submitted_at` (UTC ms) is of the carrier's clock.

    `reference` is our own as the carrier gives it back: the id of the message (32 hexadecimal digits), or its lowest 16
    bits as a decimal number (user_message_reference).
    """

    recipient: str | None
    received_at: int
    submitted_at: int | None = None
    reference: str | None = None


@valueclass
class Submit:
    """A submit that may be at the carrier under an id that nobody told us.

    It left between `earliest_at` and `latest_at` (UTC ms), if it left.
    """

    day: date
    message_id: UUID
    slot: int
    part: int
    provider: str
    recipient: str
    sender: str
    earliest_at: int
    latest_at: int


@valueclass
class Stray:
    """A receipt that no carrier id explains. `submitted_at` and `done_at` (UTC ms) are of the carrier's clock."""

    id: int
    provider: str
    carrier_id: str | None
    recipient: str
    sender: str
    received_at: int
    submitted_at: int | None = None
    done_at: int | None = None
    reference: str | None = None


def same_number(one: str, other: str) -> bool:
    """Whether two spellings name one handset: national and international forms share their last digits.

    Networks of Mexico, Argentina and Brazil write the digit that marks a mobile number, or leave it out.
    """
    ours, theirs = (_digits(number).lstrip("0") for number in (one, other))
    return _one_ends_other(ours, theirs) or _one_ends_other(*map(_without_mobile_mark, (ours, theirs)))


def _one_ends_other(ours: str, theirs: str) -> bool:
    shorter, longer = sorted((ours, theirs), key=len)
    return len(shorter) >= _TELLING_DIGITS and longer.endswith(shorter)


def _without_mobile_mark(digits: str) -> str:
    found = _MOBILE_MARK.fullmatch(digits)
    return digits if found is None else "".join(filter(None, found.groups()))


def choose(candidates: Sequence[Candidate], asked: Asked) -> Candidate | None:
    """The accepted part that a receipt is about; None where no candidate fits.

    Where a carrier uses an id again the recipient decides (if it names a handset), then our own reference, then what
    the carrier says of the time of the submit, and the newest of the rest. The carrier's clock may be wrong, so its
    times only prefer; what left long after the receipt had come cannot be meant.
    """
    recipient = asked.recipient
    telling = recipient is not None and len(_digits(recipient)) >= _TELLING_DIGITS
    fitting = [
        one
        for one in candidates
        if one.sent_at <= asked.received_at + _JUMP_MS
        and (not telling or recipient is None or not one.recipient or same_number(one.recipient, recipient))
    ]
    fitting = [one for one in fitting if refers_to(asked.reference, one.message_id)] or fitting
    fitting = [one for one in fitting if told_time_fits(asked, one)] or fitting
    fitting = [one for one in fitting if one.sent_at <= asked.received_at + _OWN_CLOCK_MS] or fitting
    return max(fitting, key=lambda one: (one.sent_at, one.message_id.int, one.slot), default=None)


def refers_to(reference: str | None, message_id: UUID) -> bool:
    """Whether our own reference, as a carrier gave it back, names this message."""
    if reference is None:
        return False
    if is_full(reference):
        return reference == message_id.hex
    return reference.isdecimal() and int(reference) == message_id.int & 0xFFFF


def is_full(reference: str | None) -> bool:
    """Whether a reference is the whole id of a message."""
    return reference is not None and len(reference) == _FULL_REFERENCE_DIGITS


def told_time_fits(asked: Asked, candidate: Candidate) -> bool:
    """Whether the carrier says that it took the message when the candidate was submitted."""
    return asked.submitted_at is not None and abs(asked.submitted_at - candidate.sent_at) <= _CARRIER_CLOCK_MS


def is_doubtful(asked: Asked, chosen: Candidate) -> bool:
    """Whether an id may have been used again: long after the chosen submit, and nothing speaks for that one."""
    if refers_to(asked.reference, chosen.message_id) or told_time_fits(asked, chosen):
        return False
    return asked.received_at - chosen.sent_at > _STALE_MS


def match_by_address(strays: Sequence[Stray], submits: Sequence[Submit], cutoff_ms: int) -> dict[int, Submit]:
    """Receipt id -> the one submit it can be about, by provider, handset, sender and time of the submit.

    A receipt that could be about two messages, or two parts of one, is left alone, and so are receipts of several
    carrier ids that ask for fewer submits than they are: one submit has one id. All submits without a known id count,
    whatever became of their messages; the caller decides whether the message may still be told.
    """
    wanted: dict[tuple[date, UUID, int], dict[object, list[Stray]]] = defaultdict(lambda: defaultdict(list))
    slots: dict[tuple[date, UUID, int], list[Submit]] = {}
    near: dict[tuple[str, str], list[Submit]] = defaultdict(list)
    for submit in submits:
        near[submit.provider, _tail(submit.recipient)].append(submit)
    for stray in strays:
        neighbours = near.get((stray.provider, _tail(stray.recipient)), ())
        fitting = [one for one in neighbours if could_be_about(stray, one, cutoff_ms)]
        places = {(one.day, one.message_id, one.part) for one in fitting}
        if len(places) != 1:
            continue
        (place,) = places
        known = slots.get(place, [])
        slots[place] = known + [one for one in fitting if one not in known]
        wanted[place][stray.carrier_id or stray.id].append(stray)
    found: dict[int, Submit] = {}
    for place, by_id in wanted.items():
        if len(by_id) > len(slots[place]):
            continue
        open_slots = sorted(slots[place], key=lambda one: (one.earliest_at, one.slot))
        for same_id in sorted(by_id.values(), key=lambda group: min((one.received_at, one.id) for one in group)):
            taken = next((one for one in open_slots if all(could_be_about(s, one, cutoff_ms) for s in same_id)), None)
            if taken is not None:
                open_slots.remove(taken)
                found.update((stray.id, taken) for stray in same_id)
    return found


def could_be_about(stray: Stray, submit: Submit, cutoff_ms: int) -> bool:
    """Whether address and time allow the receipt to be about the submit; what the receipt does not tell decides no."""
    if stray.provider != submit.provider:
        return False
    if is_full(stray.reference):
        return refers_to(stray.reference, submit.message_id)
    if stray.reference is not None and not refers_to(stray.reference, submit.message_id):
        return False
    if not same_number(stray.recipient, submit.recipient) or not _same_sender(stray.sender, submit.sender):
        return False
    if not submit.earliest_at - _OWN_CLOCK_MS <= stray.received_at <= submit.latest_at + cutoff_ms:
        return False
    since, until = submit.earliest_at - _CARRIER_CLOCK_MS, submit.latest_at + _CARRIER_CLOCK_MS
    if stray.submitted_at is not None and not since <= stray.submitted_at <= until:
        return False
    return stray.done_at is None or stray.done_at >= since


def could_own(stray: Stray, provider: str, recipient: str, claimed_at: int) -> bool:
    """Whether the receipt may be of a submit that is claimed and not answered yet."""
    claimed_before = claimed_at <= stray.received_at + _OWN_CLOCK_MS
    return claimed_before and provider == stray.provider and same_number(stray.recipient, recipient)


def other_base(carrier_id: str) -> tuple[str, ...]:
    """The normal forms that an id takes when one side writes hexadecimal and the other decimal.

    An id that is known in the other base belongs to a message that was answered: the dialect is wrong, no doubt here.
    """
    forms = set()
    if carrier_id.isascii() and len(carrier_id) <= _ID_DIGITS_MAX:
        if carrier_id.isdecimal():
            forms.add(f"{int(carrier_id):x}")
        if all(digit in "0123456789abcdef" for digit in carrier_id) and carrier_id:
            forms.add(str(int(carrier_id, 16)))
    return tuple(sorted(forms - {carrier_id}))


def next_look_ms(age_ms: int, tries: int = 0, *, crowded: bool = False) -> int:
    """How long an unmatched receipt of this age waits before it is looked at again (design section 4).

    `crowded`: more wait than one batch takes. Then the young ones back off by their tries, or the looks at them would
    take the time that others need; a newly stored carrier id hurries its own receipt all the same.
    """
    if age_ms < YOUNG_MS:
        return min(YOUNG_EVERY_MS << min(tries, 10), _CROWDED_MS) if crowded else YOUNG_EVERY_MS
    return min(max(FIRST_BACK_OFF_MS, age_ms - YOUNG_MS), LAST_BACK_OFF_MS)


def _tail(number: str) -> str:
    """What all spellings of a number that names a handset share."""
    return _digits(number)[-_TELLING_DIGITS:]


def _digits(number: str) -> str:
    return "".join(filter(str.isdigit, number))


def _same_sender(one: str, other: str) -> bool:
    """Senders are names, short codes (to the digit) or numbers in any form."""
    if not one or not other:
        return False
    if one.casefold() == other.casefold() or same_number(one, other):
        return True
    return one.lstrip("+").isdecimal() and one.lstrip("+") == other.lstrip("+")
