"""What mappings cost: seconds, joules and bytes of segments and messages, by the analytical model."""
