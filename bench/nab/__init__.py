"""The Numenta Anomaly Benchmark: its corpus, its scorer, published detectors, and DAOM's."""
