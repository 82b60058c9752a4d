"""How fast the core is, side by side with its peers. `make bench` runs it; nothing here is a test."""
