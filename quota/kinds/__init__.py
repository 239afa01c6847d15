"""One file per quota: what it charges, what it refuses, what it tells. In: who, what, when. Out: a `Verdict`.

- `controller_mutations`  seed s1, KIP-599
- `producer_ids`          seed s2, KIP-936
- `rates`                 bytes produced, bytes consumed and requests per second: KIP-13, KIP-219
- `bytes_in`              seed s4
- `storage`               seeds s0, s3: the volumes, and the factor that they ask for
- `stored_bytes`          what tenants and topics may have stored
- `slowed_rates`          seeds s0, s3: what volumes and budgets that fill ask of Produce requests: refused, held, slowed down
"""
