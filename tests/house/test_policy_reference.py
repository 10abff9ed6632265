"""The policy reference tells what the readers of the policy file ask for."""

from __future__ import annotations

from tests.house.policy_reference import PAGE, fields, page


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tests.house.policy_reference`"


def test_fields_defaults_and_ranges_are_the_readers_own() -> None:
    known = fields()
    assert len(known) > 100
    assert known["classes.CLASS.wait_budget"].defaults["otp"] == "`10s`"
    assert known["providers.PROVIDER.sessions.SESSION.host"].required
    assert known["tenants.TENANT.daily_segments"].defaults == {"": "none"}
    assert "hex_to_decimal" in known["providers.PROVIDER.dialect.receipt_ids"].takes
