"""The manager node: one leads its datacenter, the others stand by. Its desks answer requests; its leader performs what was decided."""
