"""usechat behind the proxies and on the servers that people run; `docs/deploy.md` has the same configurations."""
