"""Whole datacenters in the simulator: real managers and workers, scripted slots and clients, and an observer."""
