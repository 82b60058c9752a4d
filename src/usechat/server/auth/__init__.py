"""Authentication: bearer tokens, JSON Web Tokens, and the origin check of servers without authentication."""
