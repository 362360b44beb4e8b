"""A manager: one leads its datacenter, the others stand by. Its desks answer; its leader does what is owed."""
