"""DAOM: drift-aware online monitoring of LLM serving latency."""

__version__ = "0.1.0"
