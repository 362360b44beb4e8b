"""Three candidates for one election and one journal, and an observer that looks at the engine after each event."""
