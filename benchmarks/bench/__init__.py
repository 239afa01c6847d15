"""What the proxy costs: CPU per frame beside a pass-through of raw sockets, measured in turn in one run.

In: cases and rounds. Out: a table with CPU seconds per 100 000 frames, the time to the answer, and the ratios of both to the
baseline; memory per idle connection. No broker: a sink answers every request from a fixed text, so that what is between is
what is measured. Ratios within a run hold; absolute figures are this machine's. `paced-2000` sends 2000 requests per second
at even intervals, where waking up is what costs; the other cases are closed loops, whose times to the answer are those of a
saturated machine.

- `frames`    the requests and answers of each case
- `sink`      a broker that does next to nothing
- `baseline`  a pass-through that looks at no byte: what any proxy on these sockets costs at least
- `load`      clients with a fixed number of requests in flight
- `mixed`     clients of several kinds, which come and go (`benchmarks.soak`)
- `history`   ratios of earlier runs, in the repository (`--record`, `--check`)
- `measure`   starts the parts, reads their CPU time
- `fleet`     one proxy process beside two at the same port
"""
