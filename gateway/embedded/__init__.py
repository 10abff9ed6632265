"""The stores for one machine: a real PostgreSQL and a real Valkey from wheels, started and watched by us."""
