"""Who may use a session: roles, the directory in a database, and the look-up at the upstream's API."""
