"""Patches for functions and layers of torch itself."""
