"""Patches for the code of the repositories DINOv2 and Depth-Anything-V2, wherever it was copied to."""
