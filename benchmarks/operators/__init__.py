"""Every operator and module of torch's own tests, exported plain and with the kit: `python -m benchmarks.operators`."""
