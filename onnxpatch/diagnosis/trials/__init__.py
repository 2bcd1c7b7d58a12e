"""Exports one module or part once, and judges the graph."""
