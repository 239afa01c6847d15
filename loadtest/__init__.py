"""The load-test harness. It shares the wire with the proxy, and nothing else.

`kafka-quota-proxy loadtest`, from the command to the wire:

- `cli`        the commands; `library` and `scenarios/`: what comes along
- `scenario`   what a scenario may say
- `run`        one scenario, once, at one endpoint: starts drivers, listens, has records verified, tidies up
- `drive`      the processes that make load
- `payload`    what each record carries, and sets of sequences
- `verify`     acknowledged against consumed
- `assertions` whether what a scenario asserts is so
- `endpoint`   a cluster, and what a run makes there
- `wire`       requests by hand
- `results`    what was found: the documented result, honesty, comparison, tables, pages

Experiments and benchmarks of this project's own, `python -m loadtest.NAME`:

- `bench`  what the proxy costs: CPU per frame beside a pass-through of raw sockets, in one run (`make bench`)
- `logs`   usage logs of realistic shape, without a proxy
- `report` how fast the capacity report is, beside DuckDB (`make bench-report`)
- `idle`   what thousands of silent connections cost
- `shield` what announced sizes and half requests cost a broker, with the proxy before it and without
- `isolation` what each way to misbehave costs somebody else (`make bench-isolation`); its attacks are those of tests/isolation
- `mutations`  what a storm of new topics does to everybody else, directly and behind a quota
- `producer_ids`  what a storm of new producers does to brokers and to ordinary ones, directly and behind the quota
- `entities` messages of the protocol from plain values
- `proxied`  a proxy of its own for one measurement
- `soak`   whether memory stays flat over an hour's worth of traffic
"""
