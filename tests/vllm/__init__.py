"""A real vLLM on the CPU: its environment, a tiny model, a server."""
