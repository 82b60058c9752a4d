"""What vouches for the calls that wait for the page's output, once their run is forgotten.

The ``finish`` of a run that leaves such calls says in the message's metadata which they are, and signs that. Pages of
all releases keep metadata with the message and send it back (``ai``, ``updateMessageMetadata``).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from usechat.runs.open_calls import OpenCall, signature_of

__all__ = ["NOTHING_PENDING", "Pending", "pending_in", "pending_metadata", "pending_signature"]

_VERSION: Final = "usechat-pending-calls-v1"

NOTHING_PENDING: Final[Mapping[str, Any]] = {"usechat": {"pending": []}}
"""Pages merge objects and replace arrays, so this takes back what an earlier turn of the message said."""


class Pending(NamedTuple):
    """What a message says of its pending calls: the client's word until the signature is checked."""

    call_ids: list[str]
    signature: str


def pending_metadata(secret: str, calls: Sequence[OpenCall]) -> dict[str, Any]:
    """Return the metadata of a message whose calls wait for the page's outputs; the secret is the chat's."""
    ids = [call.tool_call_id for call in calls]
    return {"usechat": {"pending": ids, "signature": pending_signature(secret, calls)}}


def pending_signature(secret: str, calls: Sequence[OpenCall]) -> str:
    """Sign which calls wait for the page's outputs, with their tools and inputs."""
    told = [[call.tool_call_id, call.tool_name, call.input_digest] for call in calls]
    return signature_of(secret, [_VERSION, told])


def pending_in(metadata: Any) -> Pending | None:
    """Read what a message says of its pending calls; nothing if it does not, or in another shape."""
    match metadata:
        case {"usechat": {"pending": [*ids], "signature": str(signature)}}:
            return Pending(ids, signature) if all(isinstance(each, str) for each in ids) else None
    return None
