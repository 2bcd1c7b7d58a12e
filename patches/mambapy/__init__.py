"""Patches for mambapy's models."""
