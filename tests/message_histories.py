"""Seeded histories of UI messages: every part, every tool state, approvals, steps, and what a page can make of them.

Nearly all parts are those that the release's ``validateUIMessages`` accepts; a few are not, to see that nothing depends
on it.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from usechat.errors import InvalidMessages
from usechat.protocol.validation import validate_messages

Json = Any

STATES: Final = (
    "input-streaming",
    "input-available",
    "approval-requested",
    "approval-responded",
    "output-available",
    "output-error",
    "output-denied",
)
VALUES: Final[tuple[Json, ...]] = (
    None, True, 0, -1.5, 1e21, "", "text", "é😀", [], [1, [None]], {}, {"a": {"b": [False]}}, {"q": "x"},
)  # fmt: skip
METADATA: Final[tuple[Json, ...]] = ({}, {"openai": {"itemId": "i1"}}, {"openai": {}, "p": {"k": [None]}}, {"q": {}})
TEXTS: Final = ("", " ", "Hello", "é😀\n")
URLS: Final = (
    "https://example.com/a.png", "data:image/png;base64,AAAA", "data:,x", "HTTP://EXAMPLE.com:80/a b?c#d", "blob:x",
    "urn:x:y", "file:///tmp/a", "/relative.png", "relative.png", "", "http://", "http://a b/",
)  # fmt: skip
TOOL_NAMES: Final = ("plain", "converted", "other", "with-dashes", "")
REASONS: Final = ("", "not today")
DAMAGES: Final[tuple[Json, ...]] = (None, None, None, None, 1, True, "text", [], [1], {}, {"k": {}})
"""What a key may have instead of its value; ``None`` most often."""
OPTIONAL_KEYS: Final = (
    "providerMetadata", "providerReference", "callProviderMetadata", "resultProviderMetadata", "providerExecuted",
    "approval", "preliminary", "rawInput", "dynamic", "filename", "isAutomatic", "requestReason", "reason", "signature",
    "inputSchemaInput", "approved", "output", "input", "title",
)  # fmt: skip
"""Keys that a part or an approval may have."""


class Histories:
    """An endless supply of histories for one major release."""

    def __init__(self, major: str, seed: int) -> None:
        self._major = major
        self._random = Random(f"{major} {seed}")

    def __iter__(self) -> Iterator[list[Json]]:
        while True:
            yield [self._message(index) for index in range(self._random.randint(0, 5))]

    def damaged(self) -> Iterator[list[Json]]:
        """Yield histories in which keys are missing, null or of another type, and parts are repeated."""
        for messages in self:
            yield [self._damaged_message(message) for message in messages]

    def _damaged_message(self, message: Json) -> Json:
        parts = [self._damaged_part(part) if self.flag(0.3) else part for part in message["parts"]]
        repeated = [part for part in parts for _ in range(2 if self.flag(0.1) else 1)]
        damaged = message | {"parts": repeated}
        return self._without_or_other(damaged, ("role", "parts")) if self.flag(0.01) else damaged

    def _damaged_part(self, part: Json) -> Json:
        for key in ("approval", "parts"):
            inner = part.get(key)
            if inner and self.flag():
                changed = [self._damaged_part(inner[0]), *inner[1:]] if key == "parts" else self._changed(inner)
                return part | {key: changed}
        return self._changed(part)

    def _changed(self, values: Json) -> Json:
        if self.flag(0.3):
            return values | {self._one_of(OPTIONAL_KEYS): self._one_of(DAMAGES)}
        return self._without_or_other(values, list(values))

    def _without_or_other(self, values: Json, keys: Any) -> Json:
        key = self._one_of(keys)
        if self.flag(0.4):
            return {name: value for name, value in values.items() if name != key}
        return values | {key: self._one_of(DAMAGES)}

    def flag(self, chance: float = 0.5) -> bool:
        return self._random.random() < chance

    def _one_of(self, values: Any) -> Json:
        return self._random.choice(values)

    def _maybe(self, key: str, values: Any, chance: float = 0.3) -> dict[str, Json]:
        return {key: self._one_of(values)} if self.flag(chance) else {}

    def _message(self, index: int) -> Json:
        role = self._random.choices(("user", "assistant", "system", "tool"), (30, 60, 9.7, 0.3))[0]
        parts = [self._part() for _ in range(self._random.randint(0, 4 if role == "user" else 8))]
        hostile = self.flag(0.02)
        return {"id": f"m{index}", "role": role, "parts": [part for part in parts if hostile or self._is_valid(part)]}

    def _is_valid(self, part: Json) -> bool:
        try:
            validate_messages([{"id": "m", "role": "assistant", "parts": [part]}], sdk=self._major)
        except InvalidMessages:
            return False
        return True

    def _part(self) -> Json:
        kinds = {
            self._text: 12, self._reasoning: 8, self._file: 8, self._reasoning_file: 5, self._custom: 5, self._step: 20,
            self._source: 4, self._data: 10, self._steering: 6, self._tool: 40, self._unknown: 0.3,
        }  # fmt: skip
        make = self._random.choices(list(kinds), list(kinds.values()))[0]
        return make()

    def _provider(self) -> dict[str, Json]:
        return self._maybe("providerMetadata", METADATA)

    def _text(self) -> Json:
        return {"type": "text", "text": self._one_of(TEXTS), **self._maybe("state", ("done",)), **self._provider()}

    def _reasoning(self) -> Json:
        return {"type": "reasoning", "text": self._one_of(TEXTS), **self._provider()}

    def _url(self) -> str:
        return str(self._one_of(URLS[:7] if self.flag(0.97) else URLS))

    def _file(self) -> Json:
        return {
            "type": "file",
            "mediaType": "image/png",
            "url": self._url(),
            **self._maybe("filename", ("a.png", "")),
            **self._maybe("providerReference", ({}, {"openai": "file-1"})),
            **self._provider(),
        }

    def _reasoning_file(self) -> Json:
        return {"type": "reasoning-file", "mediaType": "image/png", "url": self._url(), **self._provider()}

    def _custom(self) -> Json:
        return {"type": "custom", "kind": "openai.compaction", **self._provider()}

    def _step(self) -> Json:
        return {"type": "step-start"}

    def _source(self) -> Json:
        return self._one_of(
            (
                {"type": "source-url", "sourceId": "s", "url": "https://example.com"},
                {"type": "source-document", "sourceId": "s", "mediaType": "text/plain", "title": "t"},
            )
        )

    def _data(self) -> Json:
        return {"type": self._one_of(("data-note", "data-file", "data-ignored", "data-")), "data": "said"}

    def _steering(self) -> Json:
        parts = [self._one_of((self._text, self._file))() for _ in range(self._random.randint(0, 2))]
        return {"type": "steering-message", "id": "u2", "parts": parts}

    def _unknown(self) -> Json:
        return {"type": "unknown"}

    def _tool(self) -> Json:
        dynamic = self.flag(0.4)
        name = self._one_of(TOOL_NAMES)
        state = self._one_of(STATES)
        return {
            **({"type": "dynamic-tool", "toolName": name} if dynamic else {"type": f"tool-{name}"}),
            **(self._maybe("dynamic", (False,), 0.4) if dynamic else {}),
            "toolCallId": self._one_of(("c1", "c2", "c3", "c4")),
            "state": state,
            **self._tool_values(state),
            **self._maybe("providerExecuted", (True, True, False), 0.5),
            **self._maybe("callProviderMetadata", METADATA),
            **self._maybe("title", ("Search",), 0.1),
        }

    def _tool_values(self, state: str) -> dict[str, Json]:
        values = {"input": self._one_of(VALUES)}
        if state == "input-streaming":
            return self._maybe("input", VALUES)
        if state == "output-available":
            output = self._maybe("output", VALUES, 0.98)
            return values | output | self._maybe("preliminary", (True, True, False)) | self._settled()
        if state == "output-error":
            inputs = self._maybe("input", VALUES, 0.7) | self._maybe("rawInput", VALUES)
            return inputs | {"errorText": self._one_of(TEXTS)} | self._settled()
        if state == "output-denied":
            return values | (self._approval(approved=False) if self.flag(0.9) else {})
        if state == "approval-requested":
            return values | self._approval(approved=None)
        if state == "approval-responded":
            return values | self._approval(approved=self.flag())
        return values

    def _settled(self) -> dict[str, Json]:
        approval = self._approval(approved=True) if self.flag() else {}
        return self._maybe("resultProviderMetadata", METADATA) | approval

    def _approval(self, *, approved: bool | None) -> dict[str, Json]:
        answer = {} if approved is None else {"approved": approved, **self._maybe("reason", REASONS)}
        details = {
            **self._maybe("requestReason", REASONS),
            **self._maybe("isAutomatic", (True, False)),
            **self._maybe("signature", ("s1",)),
            **self._maybe("inputSchemaInput", VALUES),
        }
        return {"approval": {"id": self._one_of(("a1", "a2")), **answer, **details}}
