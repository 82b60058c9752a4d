"""What ends a turn, or leaves it without an answer: the rules of severity ``error``."""

from typing import Final

__all__ = ["ERRORS"]

_REJECTED: Final = 'The turn ends here: status "error" with a long "Type validation failed" text; the rest is not read.'
_UNREADABLE: Final = 'The turn ends here: status "error" with a "JSON parsing failed" text; the rest is not read.'
_REFUSED: Final = 'The turn ends here: status "error"; the rest is not read.'
_EMPTY_TURN: Final = 'Nothing: the turn ends as a success (status "ready") without an answer and without an error.'

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
        "Answer 200 with an event stream. 204 is right only for the GET that asks for a stream to resume.",
    ),
    (
        "UC003",
        "The stream is empty",
        _EMPTY_TURN,
        "Send at least `start`, the parts of the answer and `finish`; report a failure as an `error` chunk.",
    ),
    (
        "UC004",
        "The body is no event stream",
        _EMPTY_TURN,
        "Write each chunk as `data: `, its JSON and a blank line; clients skip every line that begins otherwise.",
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
        "If the stream is only long, raise --timeout or --max-bytes; otherwise look for what keeps it from ending.",
    ),
    (
        "UC008",
        "The body is not compressed as its header says",
        'Status "error", as when the connection breaks: "network error" (Chrome) or "terminated" (Node).',
        "Leave the content-encoding header out; exempt text/event-stream from compression.",
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
        "A chunk is no object",
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
        "Send something these releases know, or update the page; usechat's own streams are fitted with `sdk=`.",
    ),
    (
        "UC205",
        "A key is missing",
        _REJECTED,
        "Send the key. Where there is nothing to say, `input`, `output` and `data` take null.",
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
        "Leave the key out; extra facts belong into messageMetadata, providerMetadata or a data-* chunk.",
    ),
    (
        "UC211",
        "A key that is too new for the release",
        _REJECTED,
        "Leave the key out for these releases, or update the page; usechat's own streams are fitted with `sdk=`.",
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
"""Id, title, what the user sees, how to mend it."""
