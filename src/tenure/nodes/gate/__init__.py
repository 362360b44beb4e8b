"""A gate: one address for several datacenters. It places jobs, follows them everywhere, and decides on their time."""
