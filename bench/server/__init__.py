"""How much one core serves, side by side with its peers. `make bench` runs it; nothing here is a test."""
