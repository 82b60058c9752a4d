"""The UI message stream of the AI SDK, without I/O: parts, chunks, frames and messages."""
