"""The Faust app: telemetry in, verdicts out, checkpoints between."""
