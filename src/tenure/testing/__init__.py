"""What users' tests need: a manual clock, fakes that fail on demand, fixtures."""
