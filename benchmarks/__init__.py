"""Coverage and speed tables, and the commands that make them (``python -m benchmarks.coverage --help``)."""
