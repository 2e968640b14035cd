"""The cluster: platform files, and the coefficients of the devices that they name."""
