"""Clients for programs: submit, wait, look, cancel; blocking or awaited."""
