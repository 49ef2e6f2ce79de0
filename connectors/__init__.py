"""Adapters to the outside: recordings, Kafka, Alertmanager, the embedded broker."""
