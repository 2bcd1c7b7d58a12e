"""Loops whose number of rounds depends on the input: recorded once, written as Scan or Loop. Start at `inference`."""
