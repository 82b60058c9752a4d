"""MCP Apps: the real packages read where a stream names them, in every release."""

from typing import Any

import pytest

from tests.conformance.judge import RELEASES, Chat, Judge
from tests.conformance.test_stream import check_result, frames, stream_chunks
from usechat import parts

APP = parts.McpApp("ui://weather/map", server="weather", visibility=("model", "app"))
NAMED = {
    "resourceUri": "ui://weather/map",
    "mimeType": "text/html;profile=mcp-app",
    "visibility": ["model", "app"],
    "serverId": "weather",
}
CALL = parts.ToolCall("c1", "forecast", {"city": "Oslo"}, app=APP)
PLAIN_CALL = parts.ToolCall("c1", "forecast", {"city": "Oslo"})
RESULT = parts.ToolResult("c1", {"celsius": 4})
LATE = parts.ToolResult("c1", {"celsius": 4}, app=APP)
STREAMED = [parts.ToolInputStart("c1", "forecast"), parts.ToolInputDelta("c1", '{"city": "Oslo"}'), CALL]


@pytest.mark.parametrize("release", [release for releases in RELEASES.values() for release in releases])
@pytest.mark.parametrize(
    "items",
    [
        pytest.param([CALL, RESULT, parts.Text("Mild.")], id="with-the-call"),
        pytest.param([*STREAMED, RESULT, parts.Text("Mild.")], id="with-a-streamed-call"),
        pytest.param([PLAIN_CALL, LATE, parts.Text("Mild.")], id="with-the-result"),
        pytest.param([PLAIN_CALL, PLAIN_CALL, CALL, LATE], id="with-a-later-call"),
        pytest.param([CALL, parts.ToolError("c1", "Down.")], id="with-a-call-that-fails"),
    ],
)
def test_every_release_keeps_the_app(judge: Judge, release: str, items: list[parts.Part]) -> None:
    for sdk in ("any", release):
        body = frames(stream_chunks(items, sdk))
        [result] = judge.chat(release, [Chat(body)])
        check_result(result, body, release, None, None)
        message: Any = result["message"]
        [part] = [part for part in message["parts"] if "toolCallId" in part]
        assert part["callProviderMetadata"]["mcp"]["app"] == NAMED
        assert part["input"] == {"city": "Oslo"}
        assert part.get("toolMetadata") in (None, {"app": NAMED})
        [validated] = judge.validate(release, [result["messages"]])
        assert validated["ok"] is not False, validated["error"]  # 5.0.0 has no such function


@pytest.mark.parametrize("major", ["6", "7"])
def test_the_newest_releases_have_the_app_where_their_own_renderer_reads_it(judge: Judge, major: str) -> None:
    release = RELEASES[major][-1]
    streams: list[list[parts.Part]] = [[CALL, RESULT], [PLAIN_CALL, LATE]]
    for items in streams:
        [result] = judge.chat(release, [Chat(frames(stream_chunks(items, major)))])
        message: Any = result["message"]
        [part] = [part for part in message["parts"] if "toolCallId" in part]
        assert part["toolMetadata"] == {"app": NAMED}
