"""YAML to snapshot: the whole schema of contract.md section 3, every fault in one pass."""

from __future__ import annotations

from gateway.policy.rules.carriers import read_providers
from gateway.policy.rules.document import Section, compose
from gateway.policy.rules.faults import Fault, PolicyInvalid
from gateway.policy.rules.retention import read_callbacks, read_inbound, read_logs, read_privacy, read_receipts
from gateway.policy.rules.routing import read_destinations, read_routes
from gateway.policy.rules.snapshot import Policy
from gateway.policy.rules.tenancy import read_tenant_defaults, read_tenants
from gateway.policy.rules.traffic import read_classes, read_retries

__all__ = ["Fault", "PolicyInvalid", "read_policy"]


def read_policy(source: str, version: int = 0) -> Policy:
    """The compiled policy; what the file leaves out has the contract's defaults.

    Raises PolicyInvalid with all faults, each with line and dotted path; unknown keys name the nearest known one.
    """
    faults: list[Fault] = []
    root = Section(compose(source), "", 1, faults)
    defaults = read_tenant_defaults(root)
    providers = read_providers(root)
    policy = Policy(
        version=version,
        classes=read_classes(root),
        retries=read_retries(root),
        tenant_defaults=defaults,
        tenants=read_tenants(root, defaults),
        destinations=read_destinations(root),
        providers=providers,
        routes=read_routes(root, providers),
        inbound=read_inbound(root),
        receipts=read_receipts(root),
        privacy=read_privacy(root),
        callbacks=read_callbacks(root),
        logs=read_logs(root),
    )
    root.finish()
    _check_inbound_numbers(root, policy)
    if faults:
        raise PolicyInvalid(faults)
    return policy


def _check_inbound_numbers(root: Section, policy: Policy) -> None:
    """A text from a handset must belong to one tenant only."""
    owners: dict[str, str] = {}
    for tenant in policy.tenants.values():
        for number in tenant.inbound_numbers:
            if number in owners:
                section = root.section("tenants").section(tenant.name)
                section.fault(f"{number} is a number of {owners[number]} too", "inbound_numbers")
            owners.setdefault(number, tenant.name)
