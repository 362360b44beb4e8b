"""The hang corpus: small real programs that hang, or that are slow and healthy, and what each runtime makes of them. See corpus/README.md."""
