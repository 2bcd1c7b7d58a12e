"""What a process has once, shared out among threads: its output and log, and changes that an interrupt must not leave.

Imports nothing of the package. Start reading at `undone.undone`.
"""
