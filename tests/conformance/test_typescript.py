"""The types of `usechat types` in a page, compiled by the real compiler with the real packages."""

from pathlib import Path

import pytest

from tests.conformance.tsc import complaints
from tests.test_typescript import reserved_types, weather_agent
from usechat.typescript import types_of, typescript

PAGE = """
import { useChat } from "@ai-sdk/react";
import type { ChatMessage } from "./chat-types";

export function Page() {
  const { messages, sendMessage } = useChat<ChatMessage>({
    onData: (part) => { if (part.type === "data-progress") { const percent: number = part.data.percent; } },
  });
  void sendMessage({ text: "hi" });
  for (const message of messages) {
    const tokens: number | undefined = message.metadata?.inputTokens;
    const sent: number | undefined = message.metadata?.usage?.totalTokens;
    const waiting: string[] | undefined = message.metadata?.usechat?.pending;
    for (const part of message.parts) {
      if (part.type === "tool-weather" && part.state === "output-available") {
        const city: string = part.input.city;
        const celsius: number = part.output.celsius;
        PLACE
      }
      if (part.type === "data-tree") { const name: string = part.data.children[0].name; }
    }
  }
}
"""


def compile_page(directory: Path, line: str) -> str:
    """Return what the TypeScript compiler says about a page with this line."""
    (directory / "chat-types.ts").write_text(typescript(types_of(weather_agent())), encoding="utf-8")
    (directory / "page.tsx").write_text(PAGE.replace("PLACE", line), encoding="utf-8")
    return complaints(directory, "page.tsx")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", ""),
        ("const wrong: number = part.input.city;", "Type 'string' is not assignable to type 'number'"),
        ("part.output.fahrenheit;", "Property 'fahrenheit' does not exist"),
    ],
)
def test_a_page_with_the_types_is_compiled_by_the_real_compiler(tmp_path: Path, line: str, complaint: str) -> None:
    output = compile_page(tmp_path, line)
    assert (output.count("error"), complaint in output) == (int(bool(line)), True), output


def test_types_that_have_the_names_of_the_file_itself_are_compiled(tmp_path: Path) -> None:
    page = """
        import type { ChatMessage } from "./chat-types";
        export const tokens = (message: ChatMessage): number | undefined => message.metadata?.tokens;
    """
    (tmp_path / "chat-types.ts").write_text(typescript(reserved_types()), encoding="utf-8")
    (tmp_path / "page.ts").write_text(page, encoding="utf-8")
    assert complaints(tmp_path, "page.ts") == ""
