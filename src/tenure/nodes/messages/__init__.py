"""What nodes and their clients say to each other: typed messages by who speaks, and the one table of operations."""
