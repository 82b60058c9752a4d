"""The rules of `usechat check`: one row each, with a stable id. `docs/rules.md` shows the same table to people.

UC0xx is the response, UC1xx its events, UC2xx one chunk, UC3xx an order that a client refuses, UC4xx what every client
accepts and people suffer from.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = ["RULES", "Rule", "Severity"]

Severity: TypeAlias = Literal["error", "warning"]


class Rule(NamedTuple):
    """One thing that can be wrong: what the user sees of it, and how to mend it."""

    id: str
    severity: Severity
    title: str
    sees: str
    fix: str


_REJECTED: Final = (
    'the turn ends here: `useChat` goes to status "error" with a long "Type validation failed" text, and reads no further.'
)
_UNREADABLE: Final = (
    'the turn ends here: `useChat` goes to status "error" with a "JSON parsing failed" text, and reads no further.'
)
_REFUSED: Final = 'the turn ends here: `useChat` goes to status "error", and reads no further.'
_EMPTY_TURN: Final = 'nothing at all: the turn ends as a success (status "ready") without an answer and without an error.'

_TABLE: Final = (
    # ---- the response ----
    Rule(
        "UC001",
        "error",
        "The server answers with a failure",
        'status "error", and the whole body as its text, whatever it holds: JSON and HTML are shown as they are.',
        "answer 200 and report a failure as an `error` chunk; or keep the body of the failure a short plain text.",
    ),
    Rule(
        "UC002",
        "error",
        "The response has no body",
        'status "error" with the text "The response body is empty."',
        "answer 200 with an event stream. 204 is right only for the GET that asks for a stream to resume.",
    ),
    Rule(
        "UC003",
        "error",
        "The stream is empty",
        _EMPTY_TURN,
        "send at least `start`, the parts of the answer and `finish`; report a failure as an `error` chunk.",
    ),
    Rule(
        "UC004",
        "error",
        "The body is no event stream",
        _EMPTY_TURN,
        "write each chunk as `data: `, its JSON and a blank line; clients skip every line that begins otherwise.",
    ),
    Rule(
        "UC005",
        "error",
        "The body is the data stream of AI SDK 4",
        _EMPTY_TURN,
        "send the UI message stream, which AI SDK 5 and later read: `data: {\"type\":\"text-delta\",…}` instead of `0:\"…\"`.",
    ),
    Rule(
        "UC006",
        "error",
        "The connection breaks before the stream ends",
        'what came so far, then status "error" with the text "network error" (Chrome) or "terminated" (Node).',
        "end the response properly; an exception while streaming becomes an `error` chunk, not a closed socket.",
    ),
    Rule(
        "UC007",
        "error",
        "The stream had not ended when reading stopped",
        "what came so far, and a page that waits for more.",
        "if the stream is only long, raise --timeout or --max-bytes; otherwise look for what keeps the server from ending it.",
    ),
    Rule(
        "UC010",
        "warning",
        "The content type is not text/event-stream",
        "the same as always, because clients do not look; but proxies and compression may hold the stream back.",
        "send `content-type: text/event-stream`.",
    ),
    Rule(
        "UC011",
        "warning",
        "The header x-vercel-ai-ui-message-stream is missing",
        "the same as always; but tools and gateways tell the stream by this header.",
        "send `x-vercel-ai-ui-message-stream: v1`.",
    ),
    Rule(
        "UC012",
        "warning",
        "Caches may keep the stream",
        "perhaps an old answer, or none until the stream has ended, when a cache is in between.",
        "send `cache-control: no-cache`.",
    ),
    Rule(
        "UC013",
        "warning",
        "Proxies may hold the stream back",
        "behind nginx: the whole answer at once, at the end.",
        "send `x-accel-buffering: no`.",
    ),
    Rule(
        "UC014",
        "warning",
        "The stream is compressed",
        "text that arrives in bursts, because a compressor waits until it has enough.",
        "exempt text/event-stream from compression (GZipMiddleware and proxies have a setting for it).",
    ),
    Rule(
        "UC015",
        "warning",
        "The stream arrives all at once",
        "nothing for a long time, and then the whole answer in one moment.",
        "send each chunk when it is made: look for a buffering proxy, a response that is built before it is sent, or"
        " blocking code in an async handler.",
    ),
    # ---- the events ----
    Rule(
        "UC101",
        "error",
        "An event is not JSON",
        _UNREADABLE,
        "write the chunk with a JSON encoder, on one `data:` line.",
    ),
    Rule(
        "UC102",
        "error",
        "Events run together",
        _UNREADABLE,
        "end every event with a blank line: two line ends after its JSON, not one.",
    ),
    Rule(
        "UC103",
        "error",
        "An event is empty",
        _UNREADABLE,
        "leave the event out. To keep the connection alive send a comment: `: keep-alive` and a blank line.",
    ),
    Rule(
        "UC104",
        "error",
        "The end mark is misspelt",
        _UNREADABLE,
        "write exactly `data: [DONE]`, in capitals and without a trailing space.",
    ),
    Rule(
        "UC105",
        "error",
        "NaN and Infinity are not JSON",
        _UNREADABLE,
        "send null. In Python: json.dumps(…, allow_nan=False) finds the place.",
    ),
    Rule(
        "UC106",
        "error",
        "A key reaches for a prototype",
        _UNREADABLE,
        "rename the key: clients refuse `__proto__`, and `constructor` over an object with `prototype`. Releases before"
        " 5.0.146 and 6.0.115 refuse `constructor` over null, too.",
    ),
    Rule(
        "UC107",
        "warning",
        "The last event is lost",
        "everything but this event: clients drop an event that no blank line follows, and report nothing.",
        "end every event with a blank line, the last one too.",
    ),
    Rule(
        "UC108",
        "warning",
        "Lines end with a carriage return alone",
        "everything but the last event: clients wait for the character after the last carriage return.",
        "end lines with \\n.",
    ),
    Rule(
        "UC109",
        "warning",
        "The end mark is missing",
        "the same as always; but nobody can tell a complete stream from one that was cut.",
        "end the stream with `data: [DONE]` and a blank line.",
    ),
    Rule(
        "UC110",
        "warning",
        "The stream is not UTF-8",
        "the replacement character \ufffd in place of the bytes that are no UTF-8.",
        "encode the stream as UTF-8, and cut it into pieces of bytes, not into encoded pieces of text.",
    ),
    Rule(
        "UC111",
        "warning",
        "A line belongs to no event",
        "nothing of this line: clients skip every line that begins with something other than `data:`.",
        "begin each line of an event with `data: `; escape line ends inside of JSON strings as \\n.",
    ),
    Rule(
        "UC112",
        "warning",
        "Chunks follow the end mark",
        "these chunks as well: clients do not stop at [DONE]; other readers do.",
        "send [DONE] once, as the very last event.",
    ),
    Rule(
        "UC113",
        "warning",
        "A number is too large for JavaScript",
        "another number: JavaScript rounds integers beyond 9007199254740991.",
        "send ids and other large integers as strings.",
    ),
    # ---- one chunk ----
    Rule(
        "UC201",
        "error",
        "A chunk is no object",
        _REJECTED,
        'send one JSON object per event, with a "type".',
    ),
    Rule(
        "UC202",
        "error",
        "A chunk has no type",
        _REJECTED,
        'give the chunk a "type" such as "text-delta".',
    ),
    Rule(
        "UC203",
        "error",
        "No release knows the chunk type",
        _REJECTED,
        'send a type that exists, or your own data as {"type":"data-<name>","data":…}. Unknown types are never skipped.',
    ),
    Rule(
        "UC204",
        "error",
        "The release does not know the chunk type yet",
        _REJECTED,
        "send something these releases know, or update the page; usechat's own streams are fitted with `sdk=`.",
    ),
    Rule(
        "UC205",
        "error",
        "A key is missing",
        _REJECTED,
        "send the key. Where there is nothing to say, `input`, `output` and `data` take null.",
    ),
    Rule(
        "UC206",
        "error",
        "A key is null",
        _REJECTED,
        "leave the key out: absent is fine, null is not (in Python: drop the None values before you encode).",
    ),
    Rule(
        "UC207",
        "error",
        "A value has the wrong type",
        _REJECTED,
        "send a value of the right type.",
    ),
    Rule(
        "UC208",
        "error",
        "providerMetadata is not an object of objects",
        _REJECTED,
        'put the values below the name of a provider: {"providerMetadata":{"my-app":{…}}}.',
    ),
    Rule(
        "UC209",
        "error",
        "The release does not know the finish reason",
        _REJECTED,
        "send one of stop, length, content-filter, tool-calls, error and other, which every release with finish reasons"
        " knows.",
    ),
    Rule(
        "UC210",
        "error",
        "An unknown key, in a release that takes none",
        _REJECTED,
        "leave the key out; extra facts belong into messageMetadata, providerMetadata or a data-* chunk.",
    ),
    Rule(
        "UC211",
        "error",
        "A key that is too new for the release",
        _REJECTED,
        "leave the key out for these releases, or update the page; usechat's own streams are fitted with `sdk=`.",
    ),
    Rule(
        "UC212",
        "warning",
        "A key that no release reads",
        "nothing of its value; and releases up to 5.0.216, 6.0.230 and 7.0.31 end the turn over it.",
        "leave the key out; extra facts belong into messageMetadata, providerMetadata or a data-* chunk.",
    ),
    # ---- the order ----
    Rule(
        "UC301",
        "error",
        "A block continues or ends that was never opened",
        _REFUSED,
        "open the block first: `text-start` or `reasoning-start` with the same id.",
    ),
    Rule(
        "UC302",
        "error",
        "A block continues after its end",
        _REFUSED,
        "open a new block with a fresh id after an end.",
    ),
    Rule(
        "UC303",
        "error",
        "A block continues after finish-step",
        _REFUSED,
        "end every block before `finish-step`, and open a new one after it: clients before 7.0.79 forget open blocks there.",
    ),
    Rule(
        "UC304",
        "error",
        "Tool input without its start",
        _REFUSED,
        "send `tool-input-start` with the same toolCallId first.",
    ),
    Rule(
        "UC305",
        "error",
        "A tool chunk for a call that is not there",
        _REFUSED,
        "send `tool-input-available` with the same toolCallId first. If the turn continues an earlier message, send it"
        " again right after `start`, so that a reload can replay the turn.",
    ),
    Rule(
        "UC306",
        "error",
        "A tool output that does not say `dynamic` as its input did",
        _REFUSED,
        "copy `dynamic` from the input chunk to every output chunk of the call: AI SDK 5 looks the call up by it.",
    ),
    Rule(
        "UC307",
        "error",
        "An approval is answered that was never requested",
        _REFUSED,
        "send `tool-approval-request` with the same approvalId first.",
    ),
    Rule(
        "UC308",
        "error",
        "Message metadata that cannot be merged",
        _REFUSED,
        "send message metadata as objects, always.",
    ),
    # ---- what people suffer from ----
    Rule(
        "UC401",
        "warning",
        "The turn ends with an error",
        'status "error" with the text of the chunk; the parts so far stay.',
        "nothing, if the turn really failed. A failed tool is `tool-output-error`, which lets the turn go on.",
    ),
    Rule(
        "UC402",
        "warning",
        "The failure of a tool ends the whole turn",
        "a tool that seems to run for ever, below an error.",
        "send `tool-output-error` for the call and go on; `error` is for the turn as a whole.",
    ),
    Rule(
        "UC403",
        "warning",
        "There is no start",
        "the answer under an id that the page made up: server and page cannot agree on the message later.",
        "begin with `start` and a `messageId`.",
    ),
    Rule(
        "UC404",
        "warning",
        "start has no messageId",
        "the answer under an id that the page made up: server and page cannot agree on the message later.",
        "give `start` a `messageId`; when the request continues an assistant message, the id of that message.",
    ),
    Rule(
        "UC405",
        "warning",
        "start comes late",
        "perhaps the message twice: what was shown so far stays under another id.",
        "send `start` as the very first chunk.",
    ),
    Rule(
        "UC406",
        "warning",
        "There is more than one start",
        "perhaps the message twice, when the ids differ.",
        "send `start` once.",
    ),
    Rule(
        "UC407",
        "warning",
        "There is no finish",
        "the same as for a complete answer: a stream that was cut looks like a success.",
        "end with `finish`; end a turn that failed with `error`.",
    ),
    Rule(
        "UC408",
        "warning",
        "Chunks follow finish",
        "these chunks as well; other readers stop at `finish`.",
        "send `finish` once, as the last chunk.",
    ),
    Rule(
        "UC409",
        "warning",
        "Chunks follow error",
        "nothing of these chunks: clients read no further than `error`.",
        "send what the user should see before `error`.",
    ),
    Rule(
        "UC410",
        "warning",
        "A block is never ended",
        "text that stays in the state \"streaming\": a cursor that never stops.",
        "send `text-end` or `reasoning-end` before `finish-step` and `finish`.",
    ),
    Rule(
        "UC411",
        "warning",
        "A tool call is never settled",
        "a tool that seems to run for ever.",
        "send `tool-output-available` or `tool-output-error`; if the page is to run the tool, finish with the reason"
        " tool-calls.",
    ),
    Rule(
        "UC412",
        "warning",
        "Text follows a finished tool in the same step",
        "with `lastAssistantMessageIsCompleteWithToolCalls`: the page sends the chat again, and again, without end.",
        "send `finish-step` and `start-step` between a tool's result and the text that follows.",
    ),
    Rule(
        "UC413",
        "warning",
        "Text is put before the tool it follows",
        "the new text in the earlier block, above the tool.",
        "end the block before the tool and open a new one, with a fresh id, after it.",
    ),
    Rule(
        "UC414",
        "warning",
        "A block is opened twice",
        "two blocks, the first of which stays in the state \"streaming\".",
        "use a fresh id for each block, or end the block first.",
    ),
    Rule(
        "UC415",
        "warning",
        "A tool call id is used twice",
        "the first call overwritten, or two calls that share their result.",
        "use a fresh toolCallId for each call.",
    ),
    Rule(
        "UC416",
        "warning",
        "A tool call is both dynamic and not",
        "two tool parts for one call, one of which never ends.",
        "send the same `dynamic` on every chunk of a call.",
    ),
    Rule(
        "UC417",
        "warning",
        "A tool result is overwritten",
        "the last result alone.",
        "send one result per call; results on the way there carry `preliminary: true`.",
    ),
    Rule(
        "UC418",
        "warning",
        "The last tool result is preliminary",
        "a result that looks unfinished.",
        "send the last result once more, without `preliminary`.",
    ),
    Rule(
        "UC419",
        "warning",
        "A denied call has no answered approval",
        "the denial; but the message fails validateUIMessages when the page sends it back.",
        "on AI SDK 7 send `tool-approval-response` with approved: false first; on 6 send `tool-output-error` instead.",
    ),
    Rule(
        "UC420",
        "warning",
        "The message is empty",
        "an empty message.",
        "send the answer, or an `error` chunk that says why there is none.",
    ),
    Rule(
        "UC421",
        "warning",
        "Clients ignore abort",
        'the same as for a complete answer: status "ready", and isAbort stays false.',
        "nothing, if that is wanted. To tell the user that the turn was stopped, send message metadata or a data-* chunk.",
    ),
)

RULES: Final[Mapping[str, Rule]] = {rule.id: rule for rule in _TABLE}
"""Every rule by its id."""
