"""A datacenter on one machine: inside a program (`embedded`), or beside an editor (`tenure dev`)."""
