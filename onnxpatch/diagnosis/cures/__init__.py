"""Proposes what cures a failing part: patches, options, rewrites; tries what can be tried. Start at `treatment`."""
