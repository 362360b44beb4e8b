"""How each runtime is started, given the cases, and asked what it knows of them."""
