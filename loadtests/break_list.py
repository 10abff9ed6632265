"""The rules that `loadtests.breaks` breaks: fragments of the source, what stands there instead, what must be said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Edit:
    """`old` must stand exactly once in the file."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Break:
    """`promise` is the one of docs/promises.md; `run` is a run of the campaign, `says` what its oracle must name."""

    name: str
    promise: str
    what: str
    edits: tuple[Edit, ...]
    run: str
    says: str
    strikes: int = 3


BREAKS: Final = (
    Break(
        "answer-before-the-disk",
        "What was answered 202 is never lost",
        "commits do not wait for the disk",
        (Edit("gateway/ledger/connect.py", '"jit": "off", ', '"jit": "off", "synchronous_commit": "off", '),),
        "postgres-1",
        "accepted messages lost",
    ),
    Break(
        "keys-not-looked-up",
        "One idempotency key makes one message",
        "a key that was answered before is not found, and its message is written again",
        (
            Edit("gateway/ledger/idempotency.py", "AND i.key = r.key\n", "AND i.key = r.key AND false\n"),
            Edit(
                "gateway/ledger/acceptance.py",
                "SELECT l.n FROM locked l JOIN won w ON w.tenant_id = l.tenant_id AND w.endpoint = l.endpoint "
                "AND w.key = l.key\n",
                "SELECT l.n FROM locked l\n",
            ),
        ),
        "api-1",
        "idempotency keys that made more than one message",
    ),
    Break(
        "refusal-after-the-commit",
        "What was refused does not exist",
        "a tenth of what is kept is answered with 422",
        (
            Edit(
                "gateway/api/door.py",
                "        if instead is not None:\n            return instead\n        desk.count_accepted(",
                '        if instead is not None or visit.place.key.endswith("7"):\n'
                '            return instead or raw_answer(422, b"{}", ())\n        desk.count_accepted(',
            ),
        ),
        "api-1",
        "refused messages that were kept",
    ),
    Break(
        "the-dead-keep-their-claims",
        "Every accepted message comes to its end, or is held in doubt with a date",
        "claims of a dead process are never found",
        (
            Edit(
                "gateway/ledger/owners.py",
                " WHERE a.owner_id = $1 AND a.outcome IS NULL AND a.claimed_at < $2\n",
                " WHERE a.owner_id = $1 AND a.outcome IS NULL AND a.claimed_at < $2 AND false\n",
            ),
        ),
        "egress-1",
        "claims that were never closed",
    ),
    Break(
        "receipts-answered-first",
        "Every accepted message comes to its end, or is held in doubt with a date",
        "a receipt is answered half a second before it is kept",
        (
            Edit(
                "gateway/egress/inbox_writer.py",
                "        await keep(await self._line.connection(), self._sealer, receipts, parts)\n"
                "        for place, one in enumerate(batch):\n"
                "            self._octets -= one.octets\n"
                "            one.link.answer(one.pdu, RX_T_APPN if place in unread else ROK)\n",
                "        for place, one in enumerate(batch):\n"
                "            self._octets -= one.octets\n"
                "            one.link.answer(one.pdu, RX_T_APPN if place in unread else ROK)\n"
                "        await asyncio.sleep(0.5)\n"
                "        await keep(await self._line.connection(), self._sealer, receipts, parts)\n",
            ),
        ),
        "egress-1",
        "messages without an end",
    ),
    Break(
        "callbacks-sent-once",
        "Every end is told to the tenant's endpoint",
        "a callback is sent once, and counts as taken whatever becomes of it",
        (
            Edit("gateway/callbacks/line.py", "        if answer.taken:\n", "        if True:\n"),
            # A connection that ends without an answer is met earlier: the client asks again by itself.
            Edit("gateway/callbacks/client.py", "if way.opened or not _unread(error):\n", "if True:\n"),
        ),
        "cut-callbacks-1",
        "ends that no callback told",
    ),
    Break(
        "deadline-not-asked-again",
        "No submit begins after `expires_at`",
        "what was claimed in time is written whenever its turn comes",
        (
            Edit("gateway/egress/pump.py", "        if not self._in_time(flight, now_at):\n", "        if False:\n"),
            Edit("gateway/egress/pump.py", "WRITE_WITHIN_S: Final = 2.0", "WRITE_WITHIN_S: Final = 60.0"),
            # Few are claimed and not written when a pause begins: more of them are in a hurry than in other runs.
            Edit("loadtests/campaign.py", "HURRIED_PER_S: Final = 12.0", "HURRIED_PER_S: Final = 30.0"),
        ),
        "pause-egress-57",  # most pauses end before the process's locks do: after those it writes nothing anyway
        "submitted after they expired",
        8,
    ),
    Break(
        "doubles-not-flagged",
        "What may have been sent twice says so; nothing is sent a third time",
        "a resend after a doubt does not set `possible_duplicate`",
        (
            Edit(
                "gateway/domain/outcomes.py",
                "requeue=FRONT, due_at=None, possible_duplicate=True)",
                "requeue=FRONT, due_at=None, possible_duplicate=False)",
            ),
        ),
        "egress-1",
        "unflagged doubles at the carrier",
    ),
    Break(
        "written-twice",
        "Nothing is sent without a claim on disk before it",
        "every sixteenth message is written twice under one claim",
        (
            Edit(
                "gateway/egress/pump.py",
                "            self.connection.submit(pdu, part)\n",
                "            self.connection.submit(pdu, part)\n"
                "            if flight.id.int % 16 == 0 and self.connection.window_free > 0:\n"
                "                self.connection.submit(pdu, Part(flight, number, now_mono))\n",
            ),
        ),
        "api-1",
        "submits without a claim before them",
    ),
    Break(
        "window-three-wider",
        "No session has more unanswered submits than its window",
        "a session takes three more than its window",
        (Edit("smpp/link/settings.py", "Settings(window=self.window,", "Settings(window=self.window + 3,"),),
        "pause-egress-1",
        "over the window",
    ),
    Break(
        "doubt-out-of-nothing",
        "A fault puts in doubt, flags or expires only what was claimed or on the wire",
        "one answer in fifty counts as lost",
        (
            Edit(
                "gateway/egress/pump.py",
                "            flight.took(part.number, carrier_id)\n",
                "            (flight.took if flight.id.int % 50 else lambda part, _: flight.doubt(part))"
                "(part.number, carrier_id)\n",
            ),
        ),
        "api-1",
        "without having been in flight",
    ),
    Break(
        "receipts-prove-nothing",
        "What the carrier has is not called unsent, nor the other way round",
        "a receipt does not resolve a doubt",
        (
            Edit(
                "gateway/ledger/adoption.py",
                "    doubtful = [row for row in rows if _waits_in_doubt(row)]\n",
                "    doubtful: list[Mapping[str, Any]] = []\n",
            ),
            Edit(
                "gateway/domain/folding.py",
                "    if status == states.FAILED and error_code != OUTCOME_UNKNOWN:\n",
                "    if status in (states.FAILED, states.UNCONFIRMED):\n",
            ),
        ),
        "egress-1",
        "doubts that a receipt should have resolved",
    ),
    Break(
        "death-noticed-late",
        "Codes of a killed process are taken over within 5 s where another one lives",
        "only an old heartbeat tells that a process is dead",
        (
            Edit(
                "gateway/ledger/owners.py",
                "   AND (p.id IS NULL OR p.ended_at IS NOT NULL\n        OR (p.heartbeat_at < $2",
                "   AND (false\n        OR (p.heartbeat_at < $2",
            ),
        ),
        "egress-2",
        "codes recovered later than 5 s",
    ),
)  # fmt: skip
