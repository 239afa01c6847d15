"""Processes that make load. Each does one operation of one tenant in one phase.

In: a `Job` as JSON by a pipe, then when to begin. Out: by another pipe, as JSON, that all clients are connected, sums each second,
and a `Report` at the end. When the first pipe is closed, the process that started it has ended, and it ends too.

- `drivers`    starts them: one process imports what they need, and forks (`python -m loadtest.drive`)
- `process`    what such a process does, from its start to its end
- `job`        what goes in and comes out
- `tally`      what one client counts, without locks; sums of them
- `pace`       when operations are due, whatever happens to earlier ones
- `librdkafka` reading and writing with the real client
- `raw`        connections, topics and producer ids by the protocol, for what no client does at such rates"""
