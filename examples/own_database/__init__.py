"""Chats in your own database, behind FastAPI, Starlette and Litestar."""
