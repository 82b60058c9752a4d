"""The rules of `usechat check`, one row each, with stable ids. `docs/rules.md` shows the same table.

UC0xx is about the response, UC1xx about its events, UC2xx about one chunk, UC3xx about an order of chunks that a client
refuses, UC4xx about what every client accepts although users notice it. An id is never reused for another rule.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = [
    "ERRORS",
    "NOTES",
    "RULES",
    "WARNINGS",
    "Rule",
    "Severity",
]


Severity: TypeAlias = Literal["error", "warning", "note"]
"""From the worst to the least."""


class Rule(NamedTuple):
    """One kind of problem: its ``id``, ``severity`` and ``title``, what the user ``sees``, and how to ``fix`` it.

    With an ``error``, a client rejects the stream; with a ``warning``, it accepts the stream and something goes wrong.
    A ``note`` is about releases that the stream was not made for.

    >>> RULES["UC109"].severity, RULES["UC109"].title
    ('warning', 'The end mark is missing')
    """

    id: str
    severity: Severity
    title: str
    sees: str
    fix: str


_REJECTED: Final = 'The turn ends here: status "error" with a long "Type validation failed" text; the rest is not read.'
_UNREADABLE: Final = 'The turn ends here: status "error" with a "JSON parsing failed" text; the rest is not read.'
_REFUSED: Final = 'The turn ends here: status "error"; the rest is not read.'
_EMPTY_TURN: Final = 'Nothing: the turn ends as a success (status "ready") without an answer and without an error.'

# Severity error: a client ends the turn, or there is no answer. A row is: id, title, what the user sees, how to fix it.

ERRORS: Final = (
    (
        "UC001",
        "The server answers with a failure",
        'Status "error", and the whole body as its text, whatever it holds: JSON and HTML are shown as they are.',
        "Answer 200 and report a failure as an `error` chunk; or keep the body of the failure a short plain text.",
    ),
    (
        "UC002",
        "The response has no body",
        'Status "error" with the text "The response body is empty."',
        "Answer 200 with an event stream. 204 is right only for the GET that resumes a stream.",
    ),
    (
        "UC003",
        "The stream is empty",
        _EMPTY_TURN,
        "Send at least `start`, the parts of the answer and `finish`; report a failure as an `error` chunk.",
    ),
    (
        "UC004",
        "The body is not an event stream",
        _EMPTY_TURN,
        "Write each chunk as `data: `, its JSON and a blank line; clients skip every line that begins differently.",
    ),
    (
        "UC005",
        "The body is the data stream of AI SDK 4",
        _EMPTY_TURN,
        'Send the UI message stream, as AI SDK 5 and later read it: `data: {"type":"text-delta",…}`, not `0:"…"`.',
    ),
    (
        "UC006",
        "The connection breaks before the stream ends",
        'What came so far, then status "error" with the text "network error" (Chrome) or "terminated" (Node).',
        "End the response properly; an exception while streaming becomes an `error` chunk, not a closed socket.",
    ),
    (
        "UC007",
        "The stream had not ended when reading stopped",
        "What came so far, and a page that waits for more.",
        "If the stream is only long, raise --timeout or --max-bytes; otherwise end the response after the last event.",
    ),
    (
        "UC008",
        "The body is not compressed as its header says",
        'Status "error", as when the connection breaks: "network error" (Chrome) or "terminated" (Node).',
        "Leave the content-encoding header out; exempt text/event-stream from compression.",
    ),
    (
        "UC009",
        "The stream speaks another protocol",
        _REJECTED,
        "Translate each event into chunks of the UI message stream, before it goes to the page.",
    ),
    (
        "UC101",
        "An event is not JSON",
        _UNREADABLE,
        "Write the chunk with a JSON encoder, on one `data:` line.",
    ),
    (
        "UC102",
        "Events run together",
        _UNREADABLE,
        "End every event with a blank line: two line ends after its JSON, not one.",
    ),
    (
        "UC103",
        "An event is empty",
        _UNREADABLE,
        "Leave the event out. To keep the connection alive send a comment: `: keep-alive` and a blank line.",
    ),
    (
        "UC104",
        "The end mark is misspelt",
        _UNREADABLE,
        "Write exactly `data: [DONE]`, in capitals and without a trailing space.",
    ),
    (
        "UC105",
        "NaN and Infinity are not JSON",
        _UNREADABLE,
        "Send null. In Python: json.dumps(…, allow_nan=False) finds the place.",
    ),
    (
        "UC106",
        "A key reaches for a prototype",
        _UNREADABLE,
        "Rename the key: clients refuse `__proto__`, and `constructor` over an object with `prototype`. Releases before"
        " 5.0.146 and 6.0.115 refuse `constructor` over null, too.",
    ),
    (
        "UC201",
        "A chunk is not an object",
        _REJECTED,
        'Send one JSON object per event, with a "type".',
    ),
    (
        "UC202",
        "A chunk has no type",
        _REJECTED,
        'Give the chunk a "type" such as "text-delta".',
    ),
    (
        "UC203",
        "No release knows the chunk type",
        _REJECTED,
        'Send a type that exists, or data of your own as {"type":"data-<name>","data":…}. No client skips a chunk.',
    ),
    (
        "UC204",
        "The release does not know the chunk type yet",
        _REJECTED,
        "Send something that these releases know, or update the page. With usechat, set `sdk=`.",
    ),
    (
        "UC205",
        "A key is missing",
        _REJECTED,
        "Send the key. `input`, `output` and `data` may be null.",
    ),
    (
        "UC206",
        "A key is null",
        _REJECTED,
        "Leave the key out: absent is fine, null is not (in Python: drop the None values before you encode).",
    ),
    (
        "UC207",
        "A value has the wrong type",
        _REJECTED,
        "Send a value of the right type.",
    ),
    (
        "UC208",
        "providerMetadata is not an object of objects",
        _REJECTED,
        'Put the values below the name of a provider: {"providerMetadata":{"my-app":{…}}}.',
    ),
    (
        "UC209",
        "The release does not know the finish reason",
        _REJECTED,
        "Send one of stop, length, content-filter, tool-calls, error and other, which every release with finish reasons"
        " knows.",
    ),
    (
        "UC210",
        "An unknown key, in a release that takes none",
        _REJECTED,
        "Leave the key out; put extra data into messageMetadata, providerMetadata or a data-* chunk.",
    ),
    (
        "UC211",
        "A key that is too new for the release",
        _REJECTED,
        "Leave the key out for these releases, or update the page. With usechat, set `sdk=`.",
    ),
    (
        "UC301",
        "A block continues or ends that was never opened",
        _REFUSED,
        "Open the block first: `text-start` or `reasoning-start` with the same id.",
    ),
    (
        "UC302",
        "A block continues after its end",
        _REFUSED,
        "Open a new block with a fresh id after an end.",
    ),
    (
        "UC303",
        "A block continues after finish-step",
        _REFUSED,
        "End every block before `finish-step`, and open a new one after it: clients before 7.0.79 forget it there.",
    ),
    (
        "UC304",
        "Tool input without its start",
        _REFUSED,
        "Send `tool-input-start` with the same toolCallId first.",
    ),
    (
        "UC305",
        "A tool chunk for a call that is not there",
        _REFUSED,
        "Send `tool-input-available` with the same toolCallId first. If the turn continues an earlier message, send it"
        " again right after `start`, so that a reload can replay the turn.",
    ),
    (
        "UC306",
        "A tool output that does not say `dynamic` as its input did",
        _REFUSED,
        "Copy `dynamic` from the input chunk to every output chunk of the call: AI SDK 5 looks the call up by it.",
    ),
    (
        "UC307",
        "An approval is answered that was never requested",
        _REFUSED,
        "Send `tool-approval-request` with the same approvalId first.",
    ),
    (
        "UC308",
        "Message metadata that cannot be merged",
        _REFUSED,
        "Send message metadata as objects, always.",
    ),
)

# Severity warning: every client accepts it, and users notice it.

WARNINGS: Final = (
    (
        "UC010",
        "The content type is not text/event-stream",
        "No difference, because clients do not check it. But proxies and compression may delay the stream.",
        "Send `content-type: text/event-stream`.",
    ),
    (
        "UC011",
        "The header x-vercel-ai-ui-message-stream is missing",
        "No difference. But tools and gateways recognize the stream by this header.",
        "Send `x-vercel-ai-ui-message-stream: v1`.",
    ),
    (
        "UC012",
        "Caches may keep the stream",
        "Perhaps an old answer, or none until the stream has ended, when a cache is in between.",
        "Send `cache-control: no-cache`.",
    ),
    (
        "UC013",
        "Proxies may hold the stream back",
        "Behind nginx: the whole answer at once, at the end.",
        "Send `x-accel-buffering: no`.",
    ),
    (
        "UC014",
        "The stream is compressed",
        "Text that arrives in bursts, because a compressor collects some text before it writes.",
        "Exempt text/event-stream from compression (GZipMiddleware and proxies have a setting for it).",
    ),
    (
        "UC015",
        "The stream arrives all at once",
        "Nothing for a long time, and then the whole answer in one moment.",
        "Send each chunk when it is made: look for a buffering proxy, a response that is built before it is sent, or"
        " blocking code in an async handler.",
    ),
    (
        "UC107",
        "The last event is lost",
        "Everything but this event: clients drop an event that no blank line follows, and report nothing.",
        "End every event with a blank line, the last one too.",
    ),
    (
        "UC108",
        "Lines end with a carriage return alone",
        "Everything but the last event: clients wait for the character after the last carriage return.",
        "End lines with \\n.",
    ),
    (
        "UC109",
        "The end mark is missing",
        "No difference. But other readers cannot distinguish a complete stream from one that was cut off.",
        "End the stream with `data: [DONE]` and a blank line.",
    ),
    (
        "UC110",
        "The stream is not UTF-8",
        "The replacement character \ufffd in place of the bytes that are not valid UTF-8.",
        "Encode the stream as UTF-8. Split it only after it is encoded, and do not decode single pieces.",
    ),
    (
        "UC111",
        "A line belongs to no event",
        "Nothing of this line: clients skip every line that does not begin with `data:`.",
        "Begin each line of an event with `data: `; escape line ends inside JSON strings as \\n.",
    ),
    (
        "UC112",
        "Chunks follow the end mark",
        "These chunks as well: clients do not stop at [DONE]; other readers do.",
        "Send [DONE] once, as the very last event.",
    ),
    (
        "UC113",
        "A number is too large for JavaScript",
        "Another number: JavaScript rounds integers beyond 9007199254740991.",
        "Send ids and other large integers as strings.",
    ),
    (
        "UC212",
        "A key that no release reads",
        "Nothing of its value; and releases up to 5.0.216, 6.0.230 and 7.0.31 end the turn because of it.",
        "Leave the key out; put extra data into messageMetadata, providerMetadata or a data-* chunk.",
    ),
    (
        "UC401",
        "The turn ends with an error",
        'Status "error" with the text of the chunk; the parts so far stay.',
        "Nothing, if the turn really failed. A failed tool is `tool-output-error`, which lets the turn continue.",
    ),
    (
        "UC402",
        "The failure of a tool ends the whole turn",
        "A tool that seems to run for ever, below an error.",
        "Send `tool-output-error` for the call and continue; `error` is for the turn as a whole.",
    ),
    (
        "UC403",
        "There is no start",
        "The answer under an id that the page generated: later the server does not know this id.",
        "Begin with `start` and a `messageId`.",
    ),
    (
        "UC404",
        "start has no messageId",
        "The answer under an id that the page generated: later the server does not know this id.",
        "Give `start` a `messageId`; when the request continues an assistant message, the id of that message.",
    ),
    (
        "UC405",
        "start comes late",
        "Perhaps the message twice: what was shown so far stays under another id.",
        "Send `start` as the very first chunk.",
    ),
    (
        "UC406",
        "There is more than one start",
        "Perhaps the message twice, when the ids differ.",
        "Send `start` once.",
    ),
    (
        "UC407",
        "There is no finish",
        "The same as for a complete answer: a stream that was cut looks like a success.",
        "End with `finish`; end a turn that failed with `error`.",
    ),
    (
        "UC408",
        "Chunks follow finish",
        "These chunks as well; other readers stop at `finish`.",
        "Send `finish` once, as the last chunk.",
    ),
    (
        "UC409",
        "Chunks follow error",
        "Nothing of these chunks: clients read no further than `error`.",
        "Send what the user should see before `error`.",
    ),
    (
        "UC410",
        "A block is never ended",
        'Text that stays in the state "streaming": a cursor that never stops.',
        "Send `text-end` or `reasoning-end` before `finish-step` and `finish`.",
    ),
    (
        "UC411",
        "A tool call is never settled",
        "A tool that seems to run for ever.",
        "Send `tool-output-available` or `tool-output-error`; if the page is to run the tool, finish with the reason"
        " tool-calls.",
    ),
    (
        "UC412",
        "Text follows a finished tool in the same step",
        "With `lastAssistantMessageIsCompleteWithToolCalls`: the page sends the chat again, and again, without end.",
        "Send `finish-step` and `start-step` between a tool's result and the text that follows.",
    ),
    (
        "UC413",
        "Text is put before the tool it follows",
        "The new text in the earlier block, above the tool.",
        "End the block before the tool and open a new one, with a fresh id, after it.",
    ),
    (
        "UC414",
        "A block is opened twice",
        'Two blocks, the first of which stays in the state "streaming".',
        "Use a fresh id for each block, or end the block first.",
    ),
    (
        "UC415",
        "A tool call id is used twice",
        "The first call overwritten, or two calls that share their result.",
        "Use a fresh toolCallId for each call.",
    ),
    (
        "UC416",
        "A tool call is both dynamic and not",
        "Two tool parts for one call, one of which never ends.",
        "Send the same `dynamic` on every chunk of a call.",
    ),
    (
        "UC417",
        "A tool result is overwritten",
        "The last result alone.",
        "Send one result per call; earlier results have `preliminary: true`.",
    ),
    (
        "UC418",
        "The last tool result is preliminary",
        "A result that looks unfinished.",
        "Send the last result once more, without `preliminary`.",
    ),
    (
        "UC419",
        "A denied call has no answered approval",
        "The denial; but the message fails validateUIMessages when the page sends it back.",
        "On AI SDK 7 send `tool-approval-response` with approved: false first; on 6 send `tool-output-error` instead.",
    ),
    (
        "UC420",
        "The message is empty",
        "An empty message.",
        "Send the answer, or an `error` chunk that says why there is none.",
    ),
    (
        "UC421",
        "The turn ends in a step with finished tools",
        "With `lastAssistantMessageIsCompleteWithToolCalls`: the page sends the chat again, and again, without end.",
        "Send `finish-step`, `start-step` and what the model says about the result before `finish`.",
    ),
    (
        "UC422",
        "Clients ignore abort",
        'The same as for a complete answer: status "ready", and isAbort stays false.',
        "Nothing, if that is wanted. To say that the turn was stopped, send message metadata or a data-* chunk.",
    ),
    (
        "UC423",
        "Tool input goes on after its end",
        "The tool as if its input were still being written; in another step, the tool twice.",
        "Send all of `tool-input-delta` before `tool-input-available`, in the same step.",
    ),
    (
        "UC424",
        "A part of a tool call is left behind",
        "The tool twice: once as it is, and once as if its input were still being written, for ever.",
        "Send `tool-input-available` in the same step as the `tool-input-start` of the call: complete the input before"
        " `start-step`.",
    ),
    (
        "UC425",
        "An answer of the page is never sent",
        "With `sendAutomaticallyWhen`: the user answers, or the page runs its tool, and nothing happens. Both"
        " `lastAssistantMessageIsCompleteWithToolCalls` and `…WithApprovalResponses` look at the last step alone.",
        "Begin no step while a call waits for the page: end the turn, and continue in the turn that has the answer.",
    ),
    (
        "UC427",
        "An answer of the page is overtaken",
        "With `sendAutomaticallyWhen`: the page sends the chat although it still asks. If the other calls have results,"
        " it does so without end; if the user answers them first, the last answer is never sent.",
        "Put all calls that wait for the page into the last step. Do not send `providerExecuted` for a call that waits"
        " for approval beside other calls: `lastAssistantMessageIsCompleteWithToolCalls` does not count it.",
    ),
)

# Severity note: right for the releases that the stream was made for.

NOTES: Final = (
    (
        "UC426",
        "AI SDK 5 has no approvals",
        'A page of AI SDK 6 or 7 asks the user. On a page of AI SDK 5 the turn ends here: status "error".',
        'Nothing, if no page uses AI SDK 5. Serve such pages with `sdk="5"` (`--sdk 5`), which asks through a tool.',
    ),
)

_ROWS: Final = [
    *(Rule(rule, "error", title, sees, fix) for rule, title, sees, fix in ERRORS),
    *(Rule(rule, "warning", title, sees, fix) for rule, title, sees, fix in WARNINGS),
    *(Rule(rule, "note", title, sees, fix) for rule, title, sees, fix in NOTES),
]

RULES: Final[Mapping[str, Rule]] = {rule.id: rule for rule in sorted(_ROWS)}
"""Every rule by its id."""
