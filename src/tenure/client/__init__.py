"""Clients for programs: submit jobs, wait for them, look at them, cancel them.

`async_client` and `async_job` are the source. `tools/generate_sync.py` writes their blocking twins `client` and `job` from them, and a test
fails when a twin is not current.
"""
