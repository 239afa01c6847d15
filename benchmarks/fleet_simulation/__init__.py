"""Simulates how well a fleet of proxies holds one quota: `python -m benchmarks.fleet_simulation` (`make simulate-fleet`).

- `store`     what Redis does with the ledger's batches, in memory
- `fleet`     the simulation: the code of `quota`, simulated time, no sockets
- `__main__`  the figures and the plot of docs/fleet.md

This is the only part of `benchmarks` that imports `quota`. Tests use `fleet` and `store` too.
"""
