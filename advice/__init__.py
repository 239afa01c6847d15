"""What a limit should be, from what its owner used and how it was held back. Pure functions and values; no I/O, no Spark, the
standard library only.

`kafka-quota-proxy quotas suggest` and the report read the same logs in two ways, and have to say the same of them: so both take the
arithmetic from here, and this package knows neither of them.

- `use`: what an owner used, interval by interval, as a histogram.
- `limits`: from that and from what was throttled, refused and held, the limit and the words that say what it rests on."""
