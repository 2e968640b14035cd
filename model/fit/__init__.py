"""From what a calibration measured to coefficients."""
