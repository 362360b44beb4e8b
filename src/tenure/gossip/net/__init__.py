"""Gossip on a real machine: sockets, the event loop, the log and metrics. Everything else of gossip is pure and does not import this."""
