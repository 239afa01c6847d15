"""What the proxy costs: CPU per frame beside a pass-through in C, measured in turn in one run.

In: cases and rounds. Out: a table with CPU seconds per 100 000 frames, the time to the answer, and the ratios of both to the
baseline; memory per idle connection; the share of the machine that others had. No broker: a sink answers every request from a fixed
text, so that what is between is what is measured. Ratios within a run hold; absolute figures are this machine's. `paced-100` and
`paced-16k` send 2000 requests per second at even intervals, where waking up is what costs; the other cases are closed loops, whose
times to the answer are those of a saturated machine.

- `frames`    the requests and answers of each case
- `native`    the pass-through, the sink and the load, in C
- `mixed`     clients of several kinds, which come and go (`benchmarks.soak`)
- `history`   ratios of earlier runs, and what became worse (`--check`)
- `measure`   starts the parts, reads their CPU time
- `syscalls`  system calls for each request (`--syscalls`)
- `fleet`     one proxy process beside two at the same port
- `workers`   one proxy with several workers
"""
