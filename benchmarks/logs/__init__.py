"""Usage logs of realistic shape, as docs/log-format.md has them, without a proxy: for the bench and the tests of the report.

- `plan`      who there is: tenants with their topics, brokers with their volumes; all from one seed
- `lines`     the lines of one proxy, interval by interval, each a text
- `generate`  files of them, rotated and compressed as wanted; `python -m benchmarks.logs --out DIR --lines N`

It knows the documented format and nothing of the proxy or of the report, which is what makes it fit to test them.
"""
