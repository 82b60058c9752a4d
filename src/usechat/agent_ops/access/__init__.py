"""Who may use a session, and as what: roles, the directory in a database, and the upstream's API."""
