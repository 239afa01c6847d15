"""The rules. Pure: standard library only, no I/O, no clock of its own, the time is always an argument (monotonic seconds).

In come entities, amounts and the time; out comes a `Decision`. Nothing here knows what a frame or a socket is.

- `entity`    who: a user and a client id, and Kafka's eight levels of precedence
- `keys`      the limits that there are, by their names in the Kafka protocol; what can be one
- `layers`    tables of limits: the settings file, what was set meanwhile, and what holds
- `limits`      the limits that operators set, looked up by entity
- `windows/`  arithmetic of rates, one concept a file
- `kinds/`    one file per quota: what it charges and what it answers
- `decision`  what a kind says of a request
- `produce`   what becomes of the batches of one Produce request
- `turns`     a queue for each principal, taken from in turn
- `fence`     what a refused batch of an idempotent producer makes those behind it wait for
- `slowing`   what the storage quota asks of them: refused, held, slowed down
- `confirmed`  which users brokers let write to which topics
- `fair_share` dividing a bounded resource among principals
- `shares`    which of the connections that share a rate has had more of it
- `rounds`    going round many of them in small steps
- `steps`     work in small steps
- `state`     what a restart must not lose: values to bytes and back
- `ledger`    what many proxies have charged together
- `events`      what they tell each other at once
- `engine`    the one object the proxy asks: a kind each, and the mutes that entities have to serve
"""
