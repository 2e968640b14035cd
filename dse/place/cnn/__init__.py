"""Exact partitioning of a CNN on a platform, by the costs that the search scores with: seeds, and bounds that hold."""
