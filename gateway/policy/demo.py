"""The policy of a first `make up`: everything goes to the built-in carrier simulator."""

from __future__ import annotations

DEMO_TENANT = "demo"
DEMO_PROVIDER = "simulator"
DEMO_SESSION = "sim-1"

_POLICY = """\
# The demo policy: one tenant, one carrier (the simulator that runs beside the gateway).
# Write your own from policy.example.yaml and enter it with `sluicegate policy apply FILE`.
tenant_defaults: {{weight: 1, limits: {{rate_per_s: 500, burst: 1000}}, requests: {{rate_per_s: 1000, burst: 2000}}, classes: [otp, transactional, marketing, non_priority], default_class: transactional, default_sender: Sluicegate}}
tenants:
  demo: {{}}
providers:
  simulator:
    limits: {{rate_per_s: 1000, burst: 1000}}
    sessions:
      sim-1: {{host: 127.0.0.1, port: {port}, system_id: demo, password: demo, bind: transceiver, window: 100, limits: {{rate_per_s: 1000, burst: 1000}}}}
routes:
  everywhere: {{match: {{}}, provider: simulator}}
"""  # noqa: E501 - lines of YAML


def demo_policy(simulator_port: int) -> str:
    """YAML text of the demo policy for a simulator on this port of the loopback address."""
    return _POLICY.format(port=simulator_port)
