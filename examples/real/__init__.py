"""Things that people really run, each whole in one file. tests/docs/test_examples.py runs them."""
