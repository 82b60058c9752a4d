"""An MCP server, over stdio, whose tools ask the user: one for the values of a form, one to visit a web page."""

from typing import Annotated

from mcp.server.mcpserver import AcceptedElicitation, Context, Elicit, ElicitationResult, MCPServer, Resolve
from pydantic import BaseModel, Field

server = MCPServer("restaurant")


class Table(BaseModel):
    """What a booking needs."""

    guests: int = Field(ge=1, le=8, description="How many people come")
    terrace: bool = Field(default=False, description="Whether they sit outside")


def ask_for_table(day: str) -> Elicit[Table]:
    """Ask for the table."""
    return Elicit(f"Which table on {day}?", Table)


@server.tool()
def book(day: str, table: Annotated[ElicitationResult[Table], Resolve(ask_for_table)]) -> str:
    """Book a table."""
    if not isinstance(table, AcceptedElicitation):
        return f"Nothing is booked on {day} ({table.action})."
    place = "on the terrace" if table.data.terrace else "inside"
    return f"{table.data.guests} people on {day}, {place}."


@server.tool()
async def pay(context: Context) -> str:
    """Pay the deposit, on a page of the bank."""
    answer = await context.elicit_url("Please pay the deposit.", "https://bank.example/pay/42", "payment-42")
    return f"The payment: {answer.action}."


if __name__ == "__main__":
    server.run("stdio")
