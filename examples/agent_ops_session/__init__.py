"""A small session server for trying the gateway: the first words of a prompt select what its agent does."""
