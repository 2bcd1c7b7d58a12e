"""Loops that run as often as the input says: recorded once, written as Scan or Loop. Start at `inference`."""
