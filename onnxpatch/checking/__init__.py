"""Holding a graph against eager: probes, parity, frozen sizes, dropped guards."""
