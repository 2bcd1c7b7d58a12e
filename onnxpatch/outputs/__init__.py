"""Outputs that may be missing, and the structure of outputs as it is written into the file."""
