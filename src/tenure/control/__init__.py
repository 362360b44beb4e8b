"""The control plane: the messages that nodes and clients exchange, the callers that send them, and the HTTP server that admits, decodes and answers them."""
