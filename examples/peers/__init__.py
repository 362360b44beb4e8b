"""The programs of examples/real as one writes them with the peer that each comes from. tests/docs/test_programs.py counts and runs them; docs/programs.md has the table."""
