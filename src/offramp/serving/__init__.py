"""An HTTP server that uses early exits under load."""
