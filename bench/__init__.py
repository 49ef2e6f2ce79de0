"""Benchmarks: what DAOM costs, against what others cost, in one run."""
