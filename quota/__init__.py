"""The rules. Pure: standard library only, no I/O, no clock of its own, the time is always an argument (monotonic seconds).

In come entities, amounts and the time; out comes a `Decision`. Nothing here knows what a frame or a socket is.

- `entity`    who: a user and a client id, and Kafka's eight levels of precedence
- `catalogue` the limits that there are, one row each: settings, metrics, AlterClientQuotas and the report are made from it
- `keys`      which entities and values these limits can have
- `overrides` tables of limits: the settings file, what was set meanwhile, and what holds
- `limit_table` the limits of one kind, looked up by user and client id
- `limits`    the limits of all kinds
- `windows/`  arithmetic of rates, one concept a file
- `kind`      what a kind of quota is
- `kinds/`    one file per kind: what it charges and what it answers
- `decision`  what a kind says of a request
- `engine`    all kinds of one proxy; mutes, the cap of throttles, observing
- `mutes`     which entities are muted, until when
- `rules`     the limits of one client, looked up once
- `batch`     what a Produce request brings to one partition
- `produce`   what becomes of the batches of one Produce request: the judges and their order
- `turns`     a queue for each principal, taken from in turn
- `fence`     what a refused batch of an idempotent producer makes those behind it wait for
- `stored_sizes` what the topics of each owner have stored, as brokers tell
- `confirmed`  which users brokers let write to which topics
- `fair_share` dividing a bounded resource among principals
- `shares`    which of the connections that share a rate has had more of it
- `round_robin` going round many of them in small steps
- `steps`     work in small steps
- `state`     what a restart must not lose: values to bytes and back
- `ledger`    what many proxies have charged together
- `events`      what they tell each other at once
- `engine`    the one object the proxy asks: a kind each, and the mutes that entities have to serve
"""
