"""Outputs that are None on some data: in the graph a value and a flag. Start at `decorator`."""
