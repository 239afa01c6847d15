"""The settings file. In: YAML. Out: validated models, or an error that names the key, the line and what would be right.

- `units`     sizes (64MiB), durations (30s, PT1M), addresses (host:port), port ranges, as pydantic types
- `models`    every setting, its default and its meaning: the reference in docs/settings.md is made from them
- `load`      YAML with line numbers, and errors for people
- `limits`    the quotas of the settings as the engine wants them
- `reference` the table of all settings, in Markdown
"""
