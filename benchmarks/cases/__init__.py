"""Models to measure coverage with, one module per family: see ``benchmarks.case``."""
