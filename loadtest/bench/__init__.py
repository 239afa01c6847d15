"""What the proxy costs: CPU per frame beside a pass-through of raw sockets, measured in turn in one run.

In: cases and rounds. Out: a table with CPU seconds per 100 000 frames and the ratio to the baseline. No broker: a sink
answers every request from a fixed text, so that what is between is what is measured. Ratios within a run hold; absolute
figures are this machine's.

- `frames`    the requests and answers of each case
- `sink`      a broker that does next to nothing
- `baseline`  a pass-through that looks at no byte: what any proxy on these sockets costs at least
- `load`      clients with a fixed number of requests in flight
- `measure`   starts the parts, reads their CPU time
"""
