"""Workflows in processes that can be killed one by one: a supervisor and its slots."""
