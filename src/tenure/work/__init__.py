"""Taking and doing work: loops, groups, the registry of workflows, their context, slots, dead letters."""
