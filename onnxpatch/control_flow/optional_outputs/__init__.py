"""Outputs that are None on some data: a value and a flag in the graph. Start at `decorator`."""
