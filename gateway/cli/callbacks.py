"""The verb for callbacks that gave up."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.connection import AsJson, DataDir, database, run
from gateway.cli.output import Failed, tell, tell_json


def register(app: typer.Typer) -> None:
    """Adds the verb."""

    @app.command("replay-callbacks")
    def replay_callbacks(
        tenant: Annotated[str, typer.Argument(metavar="TENANT", help="Whose callbacks.")],
        since: Annotated[str, typer.Option("--since", help="Given up within this time: 12h, 3d.")],
        data_dir: DataDir = None,
        as_json: AsJson = False,
    ) -> None:
        """Send callbacks again that gave up; their webhook-id stays, and endpoints that said 410 are asked again.

        Example: sluicegate replay-callbacks acme --since 3d
        """
        count = run(_replay(tenant, _span_ms(since), data_dir))
        if as_json:
            tell_json({"tenant": tenant, "replayed": count})
        else:
            tell(f"{count} callbacks of {tenant} are sent again")


def _span_ms(text: str) -> int:
    from gateway.policy.rules.scalars import BadValue, duration_ms

    try:
        return duration_ms(text)
    except BadValue as error:
        raise Failed(f"--since {error}", 2) from None


async def _replay(tenant: str, span_ms: int, data_dir: Path | None) -> int:
    from gateway.ledger import give_up_list
    from gateway.ledger.tenants import ids_by_name

    now_at = int(time.time() * 1000)
    async with database(data_dir) as conn:
        tenant_id = (await ids_by_name(conn, [tenant])).get(tenant)
        if tenant_id is None:
            raise Failed(f"there is no tenant {tenant}")
        return await give_up_list.replay(conn, tenant_id, now_at - span_ms, now_at, by="command line")
