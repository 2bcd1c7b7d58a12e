"""Patches for the code of the repositories DINOv2 and Depth-Anything-V2, and for copies of it."""
