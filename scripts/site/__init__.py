"""What the site of the documentation is built with."""
