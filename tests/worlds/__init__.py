"""The worlds that verify Tenure: real nodes in the simulator, and every state of a small world of jobs.

python -m tenure.sim list tests/worlds/gates/scenario.py
python -m tests.worlds.jobs search
"""
