"""Waiting for a person: the one way in which an answer pauses, and continues when the page has answered.

Stock clients post an approval or the output of a tool only when the stream has ended. So an agent that needs a person
ends its turn, and the turn that brings the answer continues it. There are two kinds of pauses.

**Stored pauses.** The framework can save its run (LangGraph, OpenAI Agents, A2A, …). The source keeps the state under a
handle that tells nothing (:mod:`~usechat.pauses.states`), and takes it once, in any process.

**Waiting tasks.** Code that the agent calls waits in a callback: an MCP server's elicitation, a permission of Claude
Code, a question of a workflow. It calls ``context.ask`` (:class:`~usechat.turn.TurnContext`), which every source has
while a run drives it. The task that drives the source is a :class:`~usechat.pauses.waiting.WaitingTask`; an agent that
asks nothing never notices.

*Who owns the task.* The run that drives it. When the code has asked, the run shows the questions and ends as
``waiting``, and its log ends with it. From then on the :class:`~usechat.pauses.waiting.WaitingTasks` of the run manager
own the task, under the handle of its chat. The turn that answers takes it out, once, and its run is the next owner:
what the task sends goes to that run's log, and a stop of that run cancels the task. What the task sends between two
turns is kept for the second one.

*What drains it.* A task without an owner is cancelled if another message supersedes it, if nobody has answered for the
``wait_seconds`` of a question, if it has sent too much meanwhile, if too many tasks wait (the oldest goes first), and
when the manager shuts down: a person may take an hour, and a restart does not wait for that. An answer that comes later
is refused with a sentence that the page shows.

*What counts.* A task that waits counts against no quota of its user and no time limit of runs: the run that asked has
ended, the run that brings the answer has its own limits. The number of waiting tasks of a process is limited instead.
A plain function that waits holds its thread (``Settings.threads``).

**Other workers.** A waiting task is known to its process alone, but the answer may reach another one.
:mod:`~usechat.pauses.forwarding` posts the turn to the process that waits, through the mailbox of the run store, and
passes its parts on.
"""
