"""Clients for programs: submit jobs, wait for them, look at them, cancel them.

`async_client`, `async_job` and `async_job_map` are the source. `tools/generate_sync.py` writes their blocking twins `client`, `job` and
`job_map` from them, and a test fails when a twin is not current.
"""
