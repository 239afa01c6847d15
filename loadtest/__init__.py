"""The load-test harness. It shares the wire with the proxy, and nothing else.

`kafka-quota-proxy loadtest`, from the command to the wire:

- `cli`        the command, which imports its `commands` once their packages are there
- `library`    the scenarios that come with the program (`scenarios/`)
- `scenario`   the keys of a scenario file, and `units`, the types of their values
- `run`        one scenario, once, at one endpoint: starts drivers, listens, has records verified, tidies up
- `drive`      the processes that make load
- `payload`    what each record carries, and sets of sequences
- `verify`     acknowledged against consumed
- `assertions` what a scenario may assert, and whether that is so
- `endpoint`   a cluster, and what a run makes there
- `wire`       requests by hand
- `results`    what was found: the documented result, checks, comparison, tables, pages
- `entities`   messages of the protocol from plain values

Benchmarks and experiments of this project are in `benchmarks`, outside of the wheel.
"""
