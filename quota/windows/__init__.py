"""Arithmetic of rates: one concept a file, numbers and times in, numbers out. No entity, no quota name, no clock.

- `spread`  seed s1: bursts spread evenly over the previous windows
"""
