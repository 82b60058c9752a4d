"""Questions that were written after the search was made: the section that answers is the first, mostly."""

from typing import Final

from usechat.demo.library import library

UNSEEN: Final[dict[str, tuple[str, ...]]] = {
    "How do I keep chats in PostgreSQL?": ("chats.md",),
    "Where is the chat history saved?": ("chats.md",),
    "How do I delete all data of one user?": ("chats.md#privacy-what-is-kept-and-how-to-delete-it",),
    "How are chat titles made?": ("chats.md#titles-and-long-histories",),
    "Can I trim a long history for the model?": ("chats.md#titles-and-long-histories",),
    "Can I use my own database for messages?": ("chats.md#a-database-of-your-own",),
    "Which HTTP routes list stored chats?": ("chats.md#chats-over-http", "serving.md#routes"),
    "How do I export a chat?": ("chats.md", "cli.md#usechat-chats", "page.md#the-page"),
    "How do I run nginx in front of it?": ("deploy.md#proxies",),
    "Does buffering of a proxy break streaming?": ("deploy.md#proxies", "rules.md#uc013"),
    "How do I scale to several processes?": (
        "deploy.md#several-workers-share-runs-with-redis",
        "deploy.md#deploying-without-losing-answers",
        "metrics.md#several-workers",
    ),
    "What happens to an answer when I deploy a new version?": ("deploy.md#deploying-without-losing-answers",),
    "What happens if the user closes the tab?": ("resume.md#when-the-page-goes-away",),
    "How large may a request be?": ("serving.md#limits",),
    "Is there a rate limit per user?": ("serving.md#limits", "auth.md", "cli.md#usechat-serve"),
    "How do I show my own error text to the user?": ("errors.md#errors-how-they-are-shown-to-people",),
    "What does the reference in an error message mean?": ("errors.md#errors-how-they-are-shown-to-people",),
    "How are approvals signed?": ("serving.md#what-the-page-answers",),
    "How does the agent get the answer of a client tool?": ("serving.md#what-the-page-answers",),
    "Can I use a database session of FastAPI in my agent?": ("serving.md#sessions-and-other-things-of-a-request",),
    "What is a factory?": ("serving.md#factories",),
    "Which objects can usechat serve?": ("serving.md#what-can-be-served",),
    "Which bearer tokens are accepted?": ("auth.md",),
    "How do I write my own authorization rule?": ("auth.md#a-rule-of-your-own",),
    "How do I allow CORS?": ("auth.md#pages-of-other-origins",),
    "Are token files read again when they change?": ("auth.md#files-that-change",),
    "How do I create an API token?": ("auth.md#api-tokens",),
    "Which log format is there?": ("metrics.md#logs",),
    "Can I monitor agent processes?": ("metrics.md#agent-processes",),
    "How do I trace requests with OpenTelemetry?": ("metrics.md#opentelemetry",),
    "Which Prometheus alerts should I set?": ("metrics.md#alerts",),
    "How do I write an adapter for my framework?": ("adapters.md",),
    "How do I test an adapter?": ("adapters.md#test-it-with-lists",),
    "How do I register an adapter by entry point?": ("adapters.md#name-it",),
    "How does an adapter pause for a person?": ("adapters.md#pauses",),
    "How do I talk to an endpoint from Python?": ("client.md#talk-to-any-endpoint",),
    "Can I chat in the terminal?": ("client.md#in-a-terminal", "cli.md#usechat-chat"),
    "How do I record a stream and play it back?": (
        "client.md#build-the-front-end-without-the-agent",
        "cli.md#usechat-record",
    ),
    "How do I test my agent with pytest?": ("client.md#test-your-agent",),
    "How do I generate TypeScript types?": ("client.md#types-for-the-page", "cli.md#usechat-types"),
    "How do I compare two recordings?": ("cli.md#usechat-diff", "client.md"),
    "What is the exit code of usechat check?": ("cli.md#usechat-check", "cli.md#the-verdict"),
    "Can I check a very large capture?": ("cli.md#large-streams",),
    "Does the checker write SARIF?": ("cli.md#the-formats",),
    "What does UC203 mean?": ("rules.md#uc203",),
    "Why is the last event lost?": ("rules.md#uc107",),
    "Why does a tool call stay open for ever?": ("rules.md#uc411", "rules.md#uc424"),
    "Which release has approvals first?": ("releases.md",),
    "What is sent instead of a chunk that a release does not know?": ("releases.md#what-is-sent-instead",),
    "How are dates written as JSON?": ("values.md",),
    "How is a flow resumed after a pause?": ("open-harness.md#turns",),
    "Which nodes can a flow have?": ("open-harness.md#nodes", "open-harness.md#the-flow-file"),
    "Where are flow runs stored?": ("open-harness.md#storing-runs",),
    "What is the input of a flow?": ("open-harness.md#the-flow-s-input", "genkit.md#the-input-of-the-flow"),
    "Can I serve a Genkit flow over HTTP?": ("genkit.md",),
    "What happens to interrupted tools in Genkit?": ("genkit.md#interrupted-tools",),
    "What is in the audit log?": ("agent-ops.md#the-audit-log",),
    "How do I give the page a title?": ("page.md", "cli.md#usechat-serve"),
    "Does assistant-ui work?": ("page.md#other-front-ends",),
    "What does the inspector show?": ("page.md#the-inspector",),
}
"""Questions, and the sections (or the pages) that answer each."""


def test_most_unseen_questions_show_the_right_section_first() -> None:
    """41 of 60 did when they were written, before anything was changed for them; the goal is 51."""
    missed = {}
    for question, right in UNSEEN.items():
        found = [section.id for section in library().search(question)]
        if not found or not found[0].startswith(right):
            missed[question] = found
    assert len(missed) <= 0.4 * len(UNSEEN), missed
