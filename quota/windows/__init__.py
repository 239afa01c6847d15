"""Arithmetic of rates: one concept a file, numbers and times in, numbers out. No entity, no quota name, no clock.

- `spread`        seed s1: bursts spread evenly over the previous windows
- `token_bucket`  what Kafka built in the end (KIP-599): a bucket that is filled at the rate
- `bloom`         seed s2: which ids are known, in little memory, with rare mistakes
- `timed`         seed s2: two of them that take turns, so that ids are forgotten
- `samples`       rates and averages as Kafka's metrics tell them
- `rate`          a limit on such a rate (KIP-13), whose excess is a debt
- `ewma`          seed s4: the one-minute rate of the classic meter

The first two have the same methods, so that either can hold a limit: `admits` and `refuses` ask and leave no trace, `wait`
promises an instant, `record` counts, `credit` takes back what was counted and did not happen.
"""

Mark = tuple[int, int]
"""What `record` returns and `credit` wants: where in its window an amount was counted. Means nothing to others."""
