"""Faults under load on real parts, whose histories the load test verifies: `make chaos`, docs/reliability.md.

`schedule.py` says which faults happen, from a seed; `system.py` starts brokers, proxies, the ledger's store and relays; `faults.py`
does each fault to it; `__main__.py` runs the scenario `chaos` of the load test, whose event (`begin.py`) begins the faults."""
