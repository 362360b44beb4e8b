"""Sends requests to nodes, blocking or awaited, over TLS or plain HTTP, and decides which node to ask next."""
