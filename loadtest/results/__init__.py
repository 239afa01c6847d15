"""Results of a load test: values, statistics, and how they are shown. Nothing here makes load.

- `model`      the documented result: what `--json` writes, and its JSON schema
- `histogram`  latencies: recorded by drivers, merged exactly
"""
