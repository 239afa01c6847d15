"""Processes that make load. Each does one operation of one tenant in one phase (`python -m loadtest.drive`).

In: a `Job` as a line of JSON on standard input, then a line that says when to begin. Out: on standard output a line when all
clients are connected, one a second with sums, and a `Report` at the end. When its standard input ends, the
process that started it has ended, and it ends too.

- `job`        what goes in and comes out
- `tally`      what one client counts, without locks; sums of them
- `pace`       when operations are due, whatever happens to earlier ones
- `librdkafka` reading and writing with the real client
- `raw`        connections, topics and producer ids by the protocol, for what no client does at such rates"""
