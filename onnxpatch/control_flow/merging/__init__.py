"""Merges the results of all paths into one graph: `Where`, `If`, one structure of outputs. Start at `merge`."""
