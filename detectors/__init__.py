"""The mathematics of drift: histograms, divergence, windows, detectors. No I/O, no clock."""
