"""Questions about usechat, and the sections (or pages) that answer each.

Both sets were written before they were measured. The weights of the search were chosen by other questions, which were
left out of `questions.toml`; the scores of these two sets were seen meanwhile. `UNSEEN` is what people ask who try
usechat. `COMPLAINTS` follow the wording of issues of the AI SDK, of agent frameworks and of chat products: symptoms, in
everyday words.
"""

from collections.abc import Mapping
from typing import Final

Questions = Mapping[str, tuple[str, ...]]

COMPLAINTS: Final[Questions] = {
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

UNSEEN: Final[Questions] = {
    "how do I install this and get a first chat running": (
        "start.md#start",
        "start.md#five-lines",
        "README.md#usechat",
    ),
    "can I try it without an api key": ("page.md#the-page-and-the-demo", "cli.md#usechat-demo"),
    "which versions of the ai sdk does it work with": (
        "releases.md#releases-which-ai-sdk-release-knows-what",
        "README.md#what-you-get",
    ),
    "hook up my langgraph graph to useChat": ("frameworks/langgraph.md#langgraph-and-langchain-agents",),
    "does it support pydantic ai agents with tools": (
        "frameworks/pydantic-ai.md#pydantic-ai",
        "frameworks/pydantic-ai.md#what-works",
        "tutorial.md#1-the-agent",
    ),
    "use the openai agents sdk as backend for my react chat": ("frameworks/openai-agents.md#openai-agents-sdk",),
    "can I plug in google adk": ("frameworks/google-adk.md#google-adk",),
    "my agent framework is not on your list, can I still use it": (
        "adapters.md#write-an-adapter-in-30-minutes",
        "adapters.md#the-adapter",
        "serving.md#what-can-be-served",
    ),
    "show what a sub agent is doing inside the chat": (
        "parts.md#several-speakers",
        "frameworks/pydantic-ai.md#pydantic-ai",
        "frameworks/openai-agents.md#openai-agents-sdk",
        "frameworks/agent-framework.md#microsoft-agent-framework",
        "frameworks/langgraph.md#what-works",
        "frameworks/claude.md#what-works",
    ),
    "add a chat endpoint to my existing fastapi app": (
        "apps.md#fastapi-and-starlette",
        "start.md#in-an-app-that-you-have",
        "serving.md#in-a-route-of-your-own",
        "serving.md#all-routes-in-an-app-of-your-own",
        "README.md#usechat",
    ),
    "does this work with Django": ("apps.md#django",),
    "I have a Flask app, how do I stream from it": ("apps.md#flask",),
    "how do I show the model's thinking to the user": ("parts.md#parts-what-an-agent-can-send", "parts.md#all-parts"),
    "send source citations along with the answer": ("parts.md#all-parts",),
    "how can I show token usage for each answer": ("parts.md#usage-and-other-metadata",),
    "run a tool in the browser and send its result back": ("tools.md#tools-that-run-on-the-page",),
    "tool call spinner never goes away": ("rules.md#uc411-a-tool-call-is-never-settled",),
    "ask the user to confirm before a dangerous tool runs": ("tools.md#approvals", "tutorial.md#2-an-approval"),
    "can somebody fake an approval from the browser": ("serving.md#what-the-page-answers",),
    "what happens to a pending approval when the server restarts": (
        "tools.md#approvals",
        "serving.md#what-the-page-answers",
        "chats.md#store-your-chats",
    ),
    "users need to upload PDFs and images to the agent": ("files.md#what-the-user-attaches",),
    "limit the size of uploaded files": ("serving.md#limits",),
    "push progress updates from inside a running tool": (
        "parts.md#from-anywhere-below-the-agent",
        "data.md#one-part-that-changes",
        "tools.md#tools-that-run-on-the-server",
    ),
    "send a status to the UI that should not be saved": ("data.md#data-that-is-not-kept",),
    "where are conversations saved by default": ("chats.md#store-your-chats", "page.md#the-page"),
    "list a user's previous chats in a sidebar": (
        "chats.md#chats-over-http",
        "chats.md#a-page-like-vercels-template",
        "chats.md#assistant-ui",
    ),
    "edit an earlier message and regenerate the answer": ("chats.md#the-page", "chats.md#a-page-like-vercels-template"),
    "delete old conversations automatically": ("chats.md#privacy-what-is-kept-and-how-to-delete-it",),
    "user refreshes the page mid answer, how do I continue the stream": (
        "resume.md#resume-and-stop",
        "resume.md#resume",
        "troubleshooting.md#a-reload-loses-the-answer",
    ),
    "stop button does not actually stop the agent": (
        "troubleshooting.md#stop-does-not-stop",
        "resume.md#a-stop-button",
    ),
    "what if someone sends a second message while the first is still streaming": (
        "resume.md#a-second-message-while-the-chat-is-answered",
        "troubleshooting.md#409-on-the-second-message",
    ),
    "same chat open in two tabs": ("resume.md#resume", "resume.md#resume-and-stop"),
    'show a friendly error instead of "An error occurred"': (
        "errors.md#errors",
        "errors.md#your-own-texts",
        "troubleshooting.md#an-error-occurred-reference-",
    ),
    "Type validation failed in the browser console": (
        "troubleshooting.md#the-page-stays-silent",
        "rules.md#uc203-no-release-knows-the-chunk-type",
        "rules.md#uc206-a-key-is-null",
    ),
    "how do I make sure users only see their own chats": (
        "auth.md#authentication-and-access",
        "auth.md#a-rule-of-your-own",
        "serving.md#authentication",
    ),
    "rate limit requests per user": ("serving.md#limits",),
    "write a pytest for my chat endpoint without calling a real model": (
        "client.md#test-your-agent",
        "tutorial.md#3-tests",
    ),
    "check whether my existing backend's stream is valid for useChat": (
        "check.md#check-a-stream",
        "cli.md#usechat-check",
    ),
    "talk to my agent from the terminal": ("client.md#in-a-terminal", "cli.md#usechat-chat"),
    "call the chat endpoint from a python script": ("client.md#talk-to-any-endpoint",),
    "run with several uvicorn workers": ("deploy.md#several-workers-share-runs-with-redis",),
    "do I need redis in production": ("deploy.md#choose-a-setup", "deploy.md#several-workers-share-runs-with-redis"),
    "answer arrives all at once behind nginx": (
        "troubleshooting.md#the-answer-comes-in-one-piece",
        "deploy.md#proxies",
        "rules.md#uc013-proxies-may-hold-the-stream-back",
        "rules.md#uc015-the-stream-arrives-all-at-once",
    ),
    "keep chats in postgres": ("deploy.md#postgresql", "chats.md#store-your-chats"),
    "what happens to running answers when I redeploy": (
        "deploy.md#deploying-without-losing-answers",
        "operate.md#deploying-without-losing-answers",
        "deploy.md#shutting-down",
    ),
    "health check endpoint for kubernetes": (
        "deploy.md#containers",
        "operate.md#what-to-watch",
        "operate.md#operate",
        "serving.md#routes",
    ),
    "prometheus metrics": ("metrics.md#metrics-spans-and-logs", "metrics.md#metrics"),
    "opentelemetry traces for each turn": ("metrics.md#opentelemetry",),
    "upgraded to AI SDK 5 and our old python stream stopped working": (
        "migrate.md#from-ai-sdk-4s-data-stream",
        "rules.md#uc005-the-body-is-the-data-stream-of-ai-sdk-4",
    ),
    "we hand-wrote the SSE stream in FastAPI, how do we switch over": ("migrate.md#from-frames-written-by-hand",),
    "how is this different from pydantic ai's VercelAIAdapter": (
        "migrate.md#from-pydantic-ais-adapter",
        "compare.md#compare",
    ),
    "why should I use this instead of vercel's own python package": (
        "compare.md#compare",
        "compare.md#what-others-do-better",
    ),
    "what is Open Harness and how do I use it with this": ("open-harness.md#open-harness-a-flow-file-answers-usechat",),
    "connect a useChat page to an Agent Ops session": (
        "agent-ops.md#agent-ops-agent-sessions-as-ai-sdk-chats",
        "agent-ops.md#in-an-app-of-your-own",
    ),
    "use a Genkit flow as the backend": (
        "genkit.md#genkit",
        "genkit.md#at-an-address",
        "genkit.md#in-this-process",
        "genkit.md#in-code",
    ),
    "does it come with a ready made chat UI": ("page.md#the-page", "start.md#start"),
    "set my own title and starter prompts on the included page": ("page.md#the-page", "cli.md#usechat-serve"),
    "what can the command line tool do": ("cli.md#the-command-line",),
    "blocked by CORS when my next.js frontend calls the python server": (
        "auth.md#pages-of-other-origins",
        "troubleshooting.md#the-page-stays-silent",
        "start.md#a-page-of-your-own",
    ),
    "every assistant message shows up twice": ("troubleshooting.md#the-tool-shows-twice",),
}
