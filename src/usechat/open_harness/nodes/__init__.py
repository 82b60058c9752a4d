"""The built-in types of nodes."""
