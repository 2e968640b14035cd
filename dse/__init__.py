"""Design space exploration: chromosomes, search, and the command line."""
