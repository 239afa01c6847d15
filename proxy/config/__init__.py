"""The settings file. In: YAML. Out: validated models, or an error that names the key, the line and what would be right.

- `units`     port ranges and listeners' addresses, beside the types of `configfile`
- `models`    every setting, its default and its meaning: the reference in docs/settings.md is made from them
- `load`      the file as settings; how files are read and mistakes told stands in `configfile`
- `limits`    the quotas of the settings as the engine wants them
- `reference` the table of all settings, in Markdown
"""
