"""Worlds in which our own code raises, at any call: no node may end, and at most the job that is struck may fail."""
