"""Exact partitioners: the best split of a graph over devices, or a bound on how much better one could be."""
