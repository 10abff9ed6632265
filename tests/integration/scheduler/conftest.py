"""A client on the real Valkey of the test run."""

from tests.property.scheduler.conftest import index

__all__ = ["index"]
