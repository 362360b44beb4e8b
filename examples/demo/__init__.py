"""The stories that `make demo` and `make demo-world` tell: `python -m examples.demo [datacenter | world]`."""
