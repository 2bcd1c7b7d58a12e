"""Which line of a failing part is the cause, and what kind of Python stands there. Start at `find_cause`."""
