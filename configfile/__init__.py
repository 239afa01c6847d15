"""Reading of files that people write. In: YAML or Java properties. Out: validated models, or an error that
names the key, the line and what would be right. It knows no settings.

- `load`   YAML with line numbers, and errors for people
- `base`   the base of all models: strict, documented, with a JSON schema of what people write
- `units`  sizes (64MiB), durations (30s, PT1M), addresses (host:port), as pydantic types
- `stamp`  whether a file has changed
- `access` how to get in: the properties file of Kafka's own tools
"""
