"""Benchmarks and experiments of this project. They are not in the wheel: run them in a checkout, `python -m benchmarks.NAME`.

- `bench`        what the proxy costs: CPU per frame beside a pass-through in C, in one run (`make bench`)
- `logs`         usage logs of realistic shape, without a proxy
- `report`       how fast the capacity report is, beside DuckDB (`make bench-report`)
- `idle`         what thousands of silent connections cost
- `soak`         whether memory stays flat over an hour's worth of traffic
- `shield`       what announced sizes and half requests cost a broker, with the proxy in front of it and without
- `isolation`    what each kind of misbehaviour costs others (`make bench-isolation`); tests/isolation uses the same attacks
- `fleet_simulation`  how well a fleet of proxies holds one quota, in simulated time (`make simulate-fleet`)
- `experiments`  scenarios of the load test, directly and behind proxies with different quotas (`make bench-mutations` and others)
- `local_proxy`  starts a proxy in front of a cluster; the demo uses it too
"""
