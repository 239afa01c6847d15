"""Commands for operators. They speak to a proxy as any client does, by the Kafka protocol or by its admin listener.

In: arguments, answers of a running proxy, logs. Out: tables, JSON, YAML, exit codes.

- `access`   how to get in: the properties files that Kafka's own tools take
- `entities` entities as kafka-configs.sh names them
- `quotas`   the commands `quotas describe`, `alter`, `export`, `import`, `diff`
- `suggest`  limits that would have fitted, from usage logs
- `throttles` who is throttled now, from the admin listener
- `plan`     how to get from the quotas that are to those that stand in a file
- `show`     tables
"""
