"""Quotas: the limits of a settings file, and what they mean for the traffic that was.

- `file`    the quotas of a proxy's settings file, those in force (`--quotas`) or proposed (`--what-if`), as values
- `holders` whose limit it is: Kafka's eight levels of users and client ids
- `replay`  the traffic of the logs against the limits: who would have been throttled, for how long
- `foresee` the replay alone, for a plan of quotas
"""
