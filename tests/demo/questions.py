"""Sixty questions about usechat, and the sections (or pages) that answer each.

Their wording follows what users wrote in issues of the AI SDK, of agent frameworks and of chat products, and not the
documentation. They were written before they were measured, and nothing was tuned on them.
"""

from collections.abc import Mapping
from typing import Final

Questions = Mapping[str, tuple[str, ...]]

UNSEEN: Final[Questions] = {
    "In dev everything streams nicely but on our server the tokens only show up when it's done": (
        "troubleshooting.md#the-answer-comes-in-one-piece",
        "deploy.md#proxies",
    ),
    "I get a 504 gateway timeout from nginx while the model is thinking": ("deploy.md#proxies",),
    "Is there any working example of v5 and FastAPI?": ("apps.md#fastapi-and-starlette", "start.md", "tutorial.md"),
    "Refreshing in the middle of a response leaves a spinner that never ends": (
        "troubleshooting.md#a-reload-loses-the-answer",
        "resume.md#resume",
    ),
    "After F5 the previous answer is rendered twice": (
        "troubleshooting.md#the-tool-shows-twice",
        "troubleshooting.md#a-reload-loses-the-answer",
    ),
    "Can generation carry on while the visitor's phone is asleep?": ("resume.md#when-the-page-goes-away",),
    "abort() on the client leaves OpenAI billing us": (
        "troubleshooting.md#stop-does-not-stop",
        "resume.md#a-stop-button",
    ),
    "Type validation failed: invalid_union on a tool chunk": (
        "check.md#check-a-stream",
        "troubleshooting.md#the-page-stays-silent",
        "rules.md#uc2",
    ),
    "We can't upgrade the npm package yet, will older clients choke on newer chunks?": ("releases.md",),
    "Thread list CRUD against our own Python service for assistant-ui": (
        "chats.md#assistant-ui",
        "chats.md#chats-over-http",
    ),
    "Where do uploaded screenshots end up, and can GPT see them?": ("files.md#what-the-user-attaches",),
    "Print input and output token counts under each reply": ("parts.md#usage-and-other-metadata",),
    "Show how far a long import job has come": ("data.md#one-part-that-changes",),
    "Push a little popup that shouldn't be in the transcript": ("data.md#data-that-is-not-kept",),
    "Supervisor with sub-agents whose tokens get interleaved": ("parts.md#several-speakers",),
    "interrupt() in my graph never reaches the UI": ("frameworks/langgraph.md#approvals-and-questions",),
    "Which thread_id does my checkpointer receive?": ("frameworks/langgraph.md#history",),
    "Does DeferredToolRequests of pydantic-ai work?": ("frameworks/pydantic-ai.md#approvals-and-client-tools",),
    "Handoffs between OpenAI agents": ("frameworks/openai-agents.md",),
    "Permission prompts of Claude Code's tools": ("frameworks/claude.md#approvals",),
    "Our bots are built with Haystack pipelines": ("frameworks/haystack.md",),
    "No framework at all, just anthropic.messages.stream": ("frameworks/model-clients.md",),
    "We wrote our own orchestration engine, what do we implement?": ("adapters.md",),
    "Someone could send a different chat id and see foreign data": (
        "auth.md#authentication-and-access",
        "auth.md#a-rule-of-your-own",
    ),
    "Firebase Auth: pass the ID token from the browser": ("auth.md#json-web-tokens", "auth.md#bearer-tokens"),
    "The user is in a session cookie set by our login middleware": ("auth.md#a-rule-of-your-own",),
    "Scripts in cron need credentials": ("auth.md#api-tokens",),
    "Vite on 5173 talks to uvicorn on 8000 and the browser refuses": ("auth.md#pages-of-other-origins",),
    "Slow down users that hammer the endpoint": ("serving.md#limits",),
    "A malicious client sends fake tool results": ("serving.md#what-the-page-answers",),
    "Could an attachment URL hit our cloud's metadata service?": ("auth.md#files-that-a-page-names",),
    "Conversations vanish when I restart the process": ("chats.md#store-your-chats",),
    "We keep messages in our own MySQL schema": ("chats.md#a-database-of-your-own",),
    "Run some bookkeeping code once the reply is complete": (
        "chats.md#a-database-of-your-own",
        "chats.md#what-is-stored-and-when",
    ),
    "Context length exceeded after fifty turns": ("chats.md#titles-and-long-histories",),
    "Legal wants old transcripts purged": ("chats.md#privacy-what-is-kept-and-how-to-delete-it",),
    "Send a colleague the address of this conversation": ("chats.md#share-a-chat",),
    "Know whether people liked the reply": ("chats.md#feedback",),
    "Edit an earlier question without losing the first version": ("chats.md#the-page", "page.md#the-page"),
    "Two tabs post to the same conversation simultaneously": (
        "resume.md#a-second-message-while-the-chat-is-answered",
        "troubleshooting.md#409-on-the-second-message",
    ),
    "Gunicorn with several workers: reconnect lands on the wrong one": (
        "deploy.md#several-workers-share-runs-with-redis",
    ),
    "Kubernetes kills the pod while an answer is being written": (
        "deploy.md#shutting-down",
        "deploy.md#deploying-without-losing-answers",
        "operate.md#deploying-without-losing-answers",
    ),
    "p95 of time to first token over the last hour": ("metrics.md#metrics",),
    "See the LLM spans in Jaeger": ("metrics.md#opentelemetry",),
    "Which path should the ALB ping?": ("operate.md#what-to-watch", "serving.md#routes"),
    "How big a box do I need for 500 simultaneous chats?": ("operate.md#capacity",),
    "Customers must not see Python tracebacks": ("errors.md#errors-how-they-are-shown-to-people",),
    "Tell the user politely that the credit is used up": ("errors.md#your-own-texts",),
    "The upstream API stalls and the request hangs": ("errors.md#agents-that-take-too-long", "serving.md#limits"),
    "Unit tests that don't burn tokens": (
        "client.md#test-your-agent",
        "client.md#build-the-front-end-without-the-agent",
        "open-harness.md#record-an-agent-and-replay-it",
    ),
    "Designers want to work on the UI while the backend isn't ready": (
        "client.md#build-the-front-end-without-the-agent",
    ),
    "Consume our chat API from a Telegram bot": ("client.md#talk-to-any-endpoint",),
    "TypeScript doesn't know the shape of my tool output": ("client.md#types-for-the-page",),
    "A datetime inside a tool result blows up": ("values.md",),
    "We followed the Python streaming preview and it broke with v5": ("migrate.md#from-ai-sdk-4s-data-stream",),
    "Describe a workflow of three LLM steps without coding": ("open-harness.md",),
    "Read the clipboard of the browser from the agent": ("tools.md#tools-that-run-on-the-page",),
    "Confirm before money is transferred": ("tools.md#approvals",),
    "Our flows are deployed as Genkit endpoints in Go": ("genkit.md",),
    "The accept and reject buttons never show up": ("troubleshooting.md#the-approval-buttons-do-not-appear",),
}
