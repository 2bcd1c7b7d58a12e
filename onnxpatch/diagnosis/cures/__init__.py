"""What cures a failing part: patches, options, rewrites; tried before they are proposed. Start at `treatment`."""
