"""Finds the line of a failing part that is the cause, and what kind of code it is. Start at `find_cause`."""
