"""The dialect of the Agent Ops RFC: what the runner itself says."""

from usechat.agent_ops.happenings import Began, Ended, Happening, ToolChanged, Wrote
from usechat.agent_ops.wire import MessageCreate, MessageFinalize, TextDelta, ToolUpdate, channel_key

__all__ = ["RunnerEvent", "happening_of"]

RunnerEvent = MessageCreate | TextDelta | ToolUpdate | MessageFinalize


def happening_of(event: RunnerEvent) -> Happening:
    """Return what happened."""
    match event:
        case TextDelta():
            return Wrote(event.turn_id, event.delta, "runner")
        case MessageCreate():
            return Began(event.turn_id, channel_key(event.channel_type, event.channel_id), "runner")
        case ToolUpdate():
            return ToolChanged(
                event.turn_id, event.call_id, event.tool_name, event.status, event.args, event.result, event.error
            )
    return Ended(event.turn_id, event.reason, event.final_text, event.error)
