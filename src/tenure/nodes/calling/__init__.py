"""Requests from one node to another, blocking or awaited, and whom to ask next."""
