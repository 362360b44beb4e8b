"""LLM agents as workers: loops, adapters and tools whose beats keep the lease."""
