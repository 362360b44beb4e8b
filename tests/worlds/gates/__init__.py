"""Gates and managers, the real ones, in a simulated world of several datacenters."""
