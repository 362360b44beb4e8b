"""The shells: worker, manager, gate. They receive, ask the core, append to the journal, act."""
