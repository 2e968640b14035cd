"""The mapping of a CNN onto a cluster, the messages that follow from it, and the plan that ranks execute."""
