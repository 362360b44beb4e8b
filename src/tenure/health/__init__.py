"""Three signals, earned extensions and a brake. Pure: told the time, does no I/O."""
