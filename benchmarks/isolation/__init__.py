"""Whether anybody can turn a quota against somebody else: attacks, and a tenant who should notice nothing of them.

- `tenants`  a real cluster with logins, an authorizer and a full volume; settings of a proxy with all quotas on
- `wire`     connections over blocking sockets
- `victims`  an ordinary workload for each quota kind, with answers that are known
- `attack`   what an attack is; `attacks/` are all of them
- `attacker` the process that attacks run in
- `small_requests`  pipelined small requests against new connections
- `__main__` the bench: throughput and p99 alone and under each attack

tests/isolation runs the same attacks and victims, and docs/isolation.md is the table of them."""
