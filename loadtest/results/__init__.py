"""What a load test found: values, their statistics, and how they are shown. Nothing here drives a load.

- `model`      the documented result: what `--json` writes, and its JSON schema
- `histogram`  latencies: recorded by drivers, merged exactly
"""
