"""The control plane over HTTP: who is let in, what is read and written, streams of events, the OpenAPI document."""
