"""How agents and their tools fail."""

from usechat.errors import UsechatError

__all__ = ["AgentFailed", "text_of"]


class AgentFailed(UsechatError):
    """An agent failed; ``error_type`` is timeout, rate_limit, auth, network, or what else it was."""

    def __init__(self, error_type: str, text: str) -> None:
        super().__init__(text)
        self.error_type = error_type


def text_of(error: BaseException) -> str:
    """Return what an error says, or at least what it is."""
    return str(error) or type(error).__name__
