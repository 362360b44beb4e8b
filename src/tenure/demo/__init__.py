"""What `make demo` shows: `python -m tenure.demo [name]`."""
