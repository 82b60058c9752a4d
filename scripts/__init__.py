"""Programs for maintainers; see the Makefile."""
