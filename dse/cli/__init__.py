"""The command line: a file for each of the larger commands, and what commands have in common."""
