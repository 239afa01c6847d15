"""Results of a load test: values, statistics, and how they are shown. Nothing here makes load.

- `model`      the documented result: what `--json` writes, and its JSON schema
- `counts`     what drivers count, in all and second by second; it adds up
- `histogram`  latencies: recorded by drivers, merged exactly
- `sampling`   CPU and memory of processes beside the load
- `checks`     what makes figures misleading, found by the harness itself
- `merge`      the results of N drivers as one
- `measures`   the figures that are compared; `statistics`: intervals and significance
- `compare`    endpoints in turn; `sweep`: the highest rate; `diff`: what got worse
- `files`      results as JSON; `tables`, `terminal`, `page`: results for people; `progress`: while a run lasts
"""
