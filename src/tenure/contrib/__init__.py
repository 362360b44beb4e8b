"""Tenure in the frameworks and queues that people already have. Each module imports its framework; nothing else in Tenure does."""
