"""A flow as it is written: the file, its nodes and edges, and the expressions in it."""
