"""Who is alive, and how healthy: SWIM with Lifeguard on the wire of memberlist."""
