"""Finds the smallest modules that fail by themselves: records their calls, exports each alone. Start at `search`."""
