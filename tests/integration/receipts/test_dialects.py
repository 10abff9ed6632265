"""Receipts in every dialect find their message: answer and receipt side together, on the whole road (I29)."""

from __future__ import annotations

from typing import Any

from smpp.simulator import SimulatorSettings
from smpp.simulator.dialect import Dialect
from tests.integration.receipts.world import Carrier, open_road


def carrier(
    dialect: str = "{}", message_ids: str = "hexadecimal", *, receipt_ids: str = "same", **simulated: Any
) -> Carrier:
    as_written = Dialect(ids=receipt_ids, **simulated)
    settings = SimulatorSettings(port=0, receipt_delay_ms=30, message_ids=message_ids, dialect=as_written)
    return Carrier(settings, dialect)


# name -> the carrier as it behaves, and the dialect that the policy gives it
DIALECTS = {
    "as-is": carrier(),
    "hex-to-decimal": carrier("{receipt_ids: hex_to_decimal}", receipt_ids="decimal"),
    "decimal-to-hex": carrier("{receipt_ids: decimal_to_hex}", "decimal", receipt_ids="hexadecimal"),
    "upper-case": carrier("{receipt_ids: case_insensitive}", "uuid", receipt_ids="upper"),
    "hex-case": carrier(receipt_ids="upper"),
    "zeros-dropped": carrier(message_ids="counter", receipt_ids="unpadded"),
    "zeros-added": carrier(message_ids="counter", receipt_ids="padded"),
    "text-alone": carrier(tlvs=()),
    "tlvs-alone": carrier(text=""),
    "nul": carrier(nul=True, tlvs=()),
    "payload": carrier(payload=True, tlvs=()),
    "data-sm": carrier(data_sm=True),
    "utf-16": carrier(data_coding=8, tlvs=()),
    "rome": carrier(
        "{receipt_dates: yyyymmddhhmm, timezone: Europe/Rome}", dates="yyyymmddhhmm", timezone="Europe/Rome"
    ),
    "no-dates": carrier(dates="empty", tlvs=()),
    "reference": carrier("{own_reference: user_message_reference}"),
    "type-zero": carrier(esm_class=0),
    "no-ids-in-answers": carrier(message_ids="empty"),
}


async def test_every_dialect_reaches_its_message(database_url: str, redis_url: str) -> None:
    """Two messages for each carrier, as many receipts: all delivered, none left, none at the wrong message."""
    async with open_road(database_url, redis_url, DIALECTS) as road:
        ids = {name: await road.put(name, 2, first=10 * n) for n, name in enumerate(DIALECTS)}
        await road.reach([one for pair in ids.values() for one in pair], "delivered", 40)
        rows = await road.world.conn.fetch(
            "SELECT r.provider, r.message_id, r.recipient, m.recipient AS wanted, m.provider AS carrier, r.done_at"
            " FROM receipts r LEFT JOIN messages m ON m.id = r.message_id"
        )
        assert len(rows) == 2 * len(DIALECTS)
        assert all((row["provider"], "+" + row["recipient"]) == (row["carrier"], row["wanted"]) for row in rows)
        now_at = road.world.clock.now_at()
        dated = [row for row in rows if row["provider"] not in ("no-dates", "tlvs-alone")]
        assert all(abs(now_at - row["done_at"]) < 120_000 for row in dated), "the carrier's zone is applied"
