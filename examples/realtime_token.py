"""A route that mints the token of `experimental_useRealtime`: a page talks to a model by voice, without your key.

`uvicorn examples.realtime_token:app`. The key of OpenAI is in `OPENAI_API_KEY`.
"""

import os

import httpx2
from fastapi import FastAPI, HTTPException

app = FastAPI()
MODEL = "gpt-realtime"


@app.post("/api/realtime/token")
async def token() -> dict[str, str | int]:
    """Return a token for one session; anyone who gets it can talk at your expense, so ask for a sign-in first."""
    api = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
    session = {"session": {"type": "realtime", "model": MODEL}}
    headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    async with httpx2.AsyncClient(timeout=30) as client:
        response = await client.post(f"{api}/realtime/client_secrets", json=session, headers=headers)
    if response.status_code != 200:
        raise HTTPException(502, "The model gives no token now.")
    secret = response.json()
    socket = api.replace("http", "ws", 1)
    return {"token": secret["value"], "url": f"{socket}/realtime?model={MODEL}", "expiresAt": secret["expires_at"]}
