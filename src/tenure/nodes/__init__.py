"""The nodes: worker, manager and gate. Each is a shell: it receives requests, asks the pure core, appends to the journal, and acts."""
