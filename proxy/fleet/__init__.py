"""What proxies of one cluster share.

- `fleet`        what this proxy shares with others, if anything
- `ledger`       sums that all proxies add to
- `events`       what the others have to know at once
- `store`        what a store has to do
- `redis_store`  Redis or Valkey as this store
"""
