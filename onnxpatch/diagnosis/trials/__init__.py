"""Exports one module or part once, and checks the graph."""
