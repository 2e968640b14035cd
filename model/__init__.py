"""What a CNN and a cluster are, what a mapping of one onto the other means, and what it costs."""
