"""Chats in a database of your own, behind FastAPI, Starlette and Litestar."""
