"""The results of all paths as one graph: `Where`, `If`, one structure of outputs. Start at `merge`."""
