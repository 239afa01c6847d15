"""Forecast: when a volume will be full, from what it held. Knows neither Spark nor logs; numbers in, numbers out.

- `history`  observations of one volume, as one value a day
- `models`   what fits a history: a line, with a weekly season or without; both tell how sure they are
- `backtest` how far a model would have been off on the last days, which it had not seen
- `forecast` the choice of a model, and the day on which a limit is reached, with its interval; or why there is none
"""
