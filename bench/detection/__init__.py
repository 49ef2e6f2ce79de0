"""The detection benchmark: false alarms, delays and attribution, against other detectors."""
