"""Jobs, their deadlines, and the fold over their events. Pure: told the time, does no I/O."""
