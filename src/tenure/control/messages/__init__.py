"""The messages between nodes and their clients, typed, by who sends them; and the one table of operations."""
