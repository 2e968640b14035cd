"""Closing the loop: some mappings of a search are measured, the model is corrected by them, and it is searched on."""
