"""Change the code of the protocol and of runs in small ways, and count the changes that no unit test notices.

`make mutants` samples 200 mutants of `protocol/` and `runs/` (`MUTANTS=50` takes fewer, `SEED=2` another sample) with
the operators of cosmic-ray. The unit tests of its package judge each mutant until one fails. Survivors are printed as a
diff. The exit code is 1 if fewer than 95 % are killed. Mutants that no test can kill do not count: those named in
``EQUIVALENT``, and `==` for `is` where one operand is an enum member or a class. Changes that are no Python or that
Python warns about (`is` with a literal), which need no test, are not sampled, nor are those that only make another
number of a number (`64 * 1024`), positional parameters of keywords, or other defaults for a method of an interface.

Imports and the collection of the tests would take most of the time, so they are done once:

1. A process collects the tests, runs all of them once without a change, and records which test runs which line. The
   record is kept in `build/` for as long as the code stays the same; tests of a file that was changed are run anew.
2. For each mutant of a function it forks a child, which replaces the code of the function and runs the tests that reach
   the changed statement, fast ones first.
3. What runs while a module is imported cannot be replaced later: such a mutant gets a process that imports usechat
   anew, and runs the tests of the module, then all other tests of the package.

Tests with generated examples draw few of them (the profile `brief`). `runs/redis` is left out: its tests start servers.
"""

import ast
import difflib
import enum
import functools
import gc
import hashlib
import importlib.machinery
import inspect
import os
import pickle
import random
import re
import resource
import signal
import sys
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import coverage
import pytest
from cosmic_ray.ast import ast_nodes, get_ast  # type: ignore[import-untyped]
from cosmic_ray.mutating import mutate_code  # type: ignore[import-untyped]
from cosmic_ray.plugins import get_operator, operator_names  # type: ignore[import-untyped]

ROOT: Final = Path(__file__).parent.parent
LOG: Final = ROOT / "build" / "mutants.log"
"""What pytest prints."""
PROGRESS: Final = LOG.with_suffix(".progress")
"""A line for each mutant that is judged: what the tests say, and after how many seconds."""
SOURCES: Final = ("src/usechat/protocol", "src/usechat/runs")
LEAST_SHARE: Final = 0.95
AT_ONCE: Final = os.cpu_count() or 1
LEAST_SECONDS: Final = 60
"""How long the tests of a mutant may take at least; a mutant with which they take longer is killed."""
SLOWDOWN: Final = 20
"""How many times as long as without a change they may take, if that is more."""
IMPORT_SECONDS: Final = 600
"""How long the tests of a mutant may take that is imported anew."""
MEMORY: Final = 4 << 30
"""How much memory a mutant may take, in bytes: it may collect without end."""
QUICK: Final = 0.3
"""Seconds: tests that take longer are run after all others."""
LIBRARIES: Final = ("hypothesis", "msgspec", "pytest_asyncio", "pytest_timeout", "starlette", "httpx", "anyio")
"""What the tests import besides usechat."""
OPTIONS: Final = (
    *("-q", "-x", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-profile=brief", "--timeout=120"),
    *("--assert=plain", "--tb=no"),  # nobody reads why a test fails
)
TESTS: Final = ("tests/protocol", "tests/runs", "--ignore=tests/runs/redis")
# Annotations with `|`, numbers that are arbitrary limits (see also `_is_pointless`), and what needs a variable.
_POINTLESS: Final = ("BinaryOperator_BitOr", "NumberReplacer", "Variable")
_STREAM: Final = ("stream", "tool_calls", "content")
"""The modules of `protocol/` whose tests are in `tests/protocol/stream`."""
_CACHE: Final = type(functools.cache(len))
_AT_IMPORT: Final = ""
"""The name under which coverage records what runs while tests are collected."""

_REASONS: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "No JSON value equals UNSET.": [
        ("reframing.py", "None if chunk.input_schema_input == UNSET else chunk.input_schema_input,"),
    ],
    "`end ^ place` is never less than the difference; if it is more, the last frame is found, which is the end, too.": [
        ("sse.py", "if end ^ place > size:"),
    ],
    "The quick way is taken less often, and the other one does the same.": [
        ("sse.py", f"and len(data) {sign} 2 <= self._maximum") for sign in ("+", "*", "**", "<<", "|", "^")
    ]
    + [("sse.py", f"and len(data) - 2 {sign} self._maximum") for sign in ("<", "==", "is")]
    + [
        ("sse.py", "and part.lane is self._lane"),
        ("sse.py", "and metadata is self._metadata"),
        ("sse.py", "and (self._metadata is not None and same_metadata(metadata, self._metadata))"),
        ("sse.py", "or (self._metadata is None and same_metadata(metadata, self._metadata))"),
    ],
    "Zero is the same in base 8 and in base 10.": [
        (
            "model_messages.py",
            f'base = 16 if label.startswith("0x") else 8 if label.startswith("0") and label {sign} "0" else 10',
        )
        for sign in (">", ">=", "is not")
    ],
    "The last message of the user has no calls that are converted.": [
        ("model_messages.py", "converted += conversion.message(message, before_user=number <= last_user)"),
    ],
    "It is set with every piece of an input, before anybody looks at it.": [
        ("tool_parts.py", "self.keeps_raw_input = True"),
    ],
    "The answer that is shown is True, False or None.": [
        ("tool_calls.py", "call.approved = part.approved and call.shown_answer != False"),
        ("tool_calls.py", "return self.shown_answer == False and self.approved is False"),
        ("tool_calls.py", "if call.shown_answer == False:"),
    ],
    "The parts are replaced later.": [
        (
            "message.py",
            'self._fields = {key: plain_json(value) for key, value in base.items() if key is not "parts"}',
        ),
    ],
    "`flushed` is set to the object that `size` is.": [
        ("log.py", "if self.flushed is not self.size:"),
        ("log.py", "if flushed is self.size:"),
    ],
    "Nothing is flushed that was not written.": [
        ("log.py", "if self.flushed < self.size:"),
        ("log.py", "if flushed >= self.size:"),
    ],
    "Both have the same length.": [
        ("partial_json.py", "for mode, following in zip(_HEX_DIGITS, after, strict=False)"),
        (
            "schema.py",
            'first = [f"{major}.0.{patch}" for major, patch in zip(MAJORS, since, strict=False) if patch is not None]',
        ),
        (
            "values.py",
            "for name, attribute in zip(value.__struct_encode_fields__, value.__struct_fields__, strict=False):",
        ),
    ],
    "Nothing in the module changes these objects or gives them another attribute, and they do not leave it.": [
        ("model_messages.py", f"@dataclass({options})")
        for options in ("frozen=False", "frozen=False, slots=True", "frozen=True, slots=False", "slots=False")
    ],
    "Every pusher is that of a reader.": [
        ("log.py", "if len(self._pushers) < len(self._readers):"),
    ],
    "A count is never negative.": [
        ("message.py", "return self._continues or self._updates != 0"),
        ("run.py", "is_cancelled = task is not None and task.cancelling() != 0"),
        ("tool_parts.py", 'boundary: list[Part] = [{"type": "step-start"}] * (self.step != 0)'),
    ],
    "A frame is never empty, so none ends at 0.": [
        ("sse.py", "end = end_of_piece(self._frames, place, 0, end) if cut <= 0 else cut + len(_FRAME_END)"),
        ("sse.py", "return end if position <= 0 else position + len(_FRAME_END)"),
    ],
    "No role comes before `assistant` in the alphabet.": [
        (
            "model_messages.py",
            'if message["role"] <= "assistant" and messages and messages[-1]["role"] == "assistant":',
        ),
        (
            "model_messages.py",
            'if message["role"] == "assistant" and messages and messages[-1]["role"] <= "assistant":',
        ),
        ("request.py", 'return message if message["role"] <= "assistant" else None'),
        (
            "validation.py",
            'may_be_empty = message["role"] <= "assistant" and holds(release, "assistant-without-parts")',
        ),
    ],
    "No role comes after `user` in the alphabet.": [
        (
            "request.py",
            'return next((message for message in reversed(self.messages) if message["role"] >= "user"), None)',
        ),
    ],
    "There are two triggers: `regenerate-message`, and after it in the alphabet `submit-message`.": [
        (
            "request.py",
            'is_answerable = request.trigger <= "regenerate-message" or request.last_user_message or request.continues',
        ),
        (
            "transport.py",
            'message = request.last_user_message if request.trigger >= "submit-message" and not continues else None',
        ),
    ],
    "It is asked about calls in two states: `output-available`, and after it in the alphabet `output-error`.": [
        ("model_messages.py", 'if call.get("state") >= "output-error":'),
        ("request.py", "if call.state < ToolState.OUTPUT_ERROR:"),
    ],
    "What is behind a call is neither the call itself nor in an earlier message.": [
        ("model_messages.py", f"in_place = position[0] {first} self.position[0] and position {second} self.position")
        for first, second in (("<=", ">"), ("==", ">="))
    ],
    "There are two types of blocks: `reasoning`, and after it in the alphabet `text`.": [
        ("message.py", 'if part_type <= "reasoning" and self._reads("reasoning-id"):'),
    ],
    "There are two types of tool parts: `dynamic-tool`, and after it in the alphabet what begins with `tool-`.": [
        ("tool_calls.py", 'dynamic = part["type"] <= "dynamic-tool"'),
    ],
    "The JSON of a chunk begins with a brace, which comes after the bracket.": [
        ("sse.py", 'return [data for data in lines if data and data > b"[DONE]"]'),
    ],
    "The first end of a frame is never behind the last one, and this text ends with one.": [
        (
            "sse.py",
            "if not merged.endswith(_DELTA_END) or merged.find(_FRAME_END) < len(merged) - len(_FRAME_END):",
        ),
    ],
    "Without more bytes than `size`, the last frame that is found is the end, too.": [
        ("sse.py", f"if end - place {sign} size:") for sign in (">=", "!=", "is not")
    ],
    "Without more bytes than a slice, the piece ends where the bytes end.": [
        ("log.py", f"if end - begin {sign} _SLICE:") for sign in (">=", "!=", "is not")
    ],
    "A text is read character by character to its end.": [
        ("partial_json.py", "while position != len(text):"),
    ],
    "A piece never ends behind the frames.": [
        ("sse.py", "while begin != len(frames):"),
    ],
    "No part is in a step that has not begun.": [
        ("tool_parts.py", "if step < self.step:"),
        ("tool_parts.py", "if chunk.tool_call_id not in self._behind or streaming.step < self._parts.step:"),
    ],
    "A text buffer has at least one piece.": [
        ("tool_parts.py", "if len(self._pieces) != 1:"),
    ],
    "No number is less than the next whole number below it.": [
        ("schema.py", "or not (value <= value // 1 and 0 <= value < 2**53)"),
        ("validation.py", "if not is_number or not 0 <= value <= _LARGEST_INTEGER or value > int(value):"),
    ],
    "Of digits without leading zeros, and of fractions, none but the empty text comes before `0`.": [
        ("values.py", 'digits = (whole + ("" if fraction <= "0" else fraction)).lstrip("0") or "0"'),
        ("values.py", 'if digits <= "0":'),
        ("values.py", 'if whole > "0":'),
    ],
    "Zero is written without its sign.": [
        ("values.py", 'sign = "-" if value <= 0 else ""'),
    ],
    "The policies in the alphabet: `attach`, `interrupt`, `queue`, `reject`; each is asked about after those before.": [
        (
            "manager.py",
            'if active.answers_same_message(info) or (self._conflict <= "attach" and not is_edited):',
        ),
        (
            "manager.py",
            'elif self._conflict <= "interrupt" or is_edited:  # nobody waits for the answer to a message that is'
            " replaced",
        ),
        ("manager.py", 'elif not await self._stop_if_unread(active) and self._conflict >= "reject":'),
    ],
    "Not more calls are known than there are.": [
        ("open_calls.py", "if pending is not None and len(calls) >= len(claims):"),
    ],
    "No state of a call comes before `approval-requested` in the alphabet.": [
        (
            "model_messages.py",
            'if before_user and state <= "approval-requested" and self.has("user-messages-supersede-approvals"):',
        ),
    ],
    "The keys are names in this module, of which Python keeps one string each.": [
        ("tool_parts.py", 'updates = {key: value for key, value in updates.items() if key is not "providerExecuted"}'),
    ],
    "No other trigger comes after `submit-message` in the alphabet, and no other name of releases after `any`.": [
        ("request.py", 'if self.trigger < "submit-message" or not self.messages:'),
        (
            "releases.py",
            'candidates = self.releases if self.name < "any" or chunk_type not in APPROVALS else self.releases[1:]',
        ),
        ("run.py", 'if self.info.sdk >= "any" and any(call.was_requested for call in self._stream.waiting_calls):'),
    ],
    "No JSON value equals UNSET, and calls are equal only if they are the same.": [
        ("tool_parts.py", 'if value != UNSET and (value is not None or key == "inputSchemaInput"):'),
        ("tool_calls.py", "is_current = self._approvals.get(part.approval_id) == call"),
        (
            "tool_calls.py",
            "if call.approval_id is not None and self._approvals.get(call.approval_id) == call:",
        ),
    ],
    "What ends with an empty line has two line breaks: the quick way is never taken.": [
        ("sse.py", 'and data.count(b"\\n") < 2'),
    ],
    "What ends with an empty line has at least two line breaks.": [
        ("sse.py", 'and data.count(b"\\n") <= 2'),
    ],
    "A reader is not beyond what was flushed when frames come; if it has everything, both are the same object.": [
        (
            "log.py",
            "if limit is not None and len(frames) > limit and not self._bulk and self.place is not self._log.flushed:",
        ),
    ],
    "There is nothing to attach to once a run has ended.": [
        ("transport.py", "if info is None or info.state > RunState.RUNNING:"),
    ],
    "Both sides of the comparison are written the same way.": [
        ("open_calls.py", "if isinstance(value, int) and abs(value) != _LARGEST_EXACT:"),
        ("open_calls.py", "if isinstance(value, int) and abs(value) >= _LARGEST_EXACT:"),
    ],
    "A JSON text of that length has no more brackets; looking at the length saves time.": [
        (
            "values.py",
            f'if len(text) {sign} 2 * READABLE_DEPTH and text.count("{{") + text.count("[") > READABLE_DEPTH:',
        )
        for sign in ("!=", ">=", "is not")
    ]
    + [
        (
            "values.py",
            f'if len(text) > 2 {sign} READABLE_DEPTH and text.count("{{") + text.count("[") > READABLE_DEPTH:',
        )
        for sign in (">>", "%")
    ],
    "The other keys, `title` and `toolMetadata`, come after it in the alphabet.": [
        ("tool_parts.py", 'updates = {key: value for key, value in updates.items() if key > "providerExecuted"}'),
    ],
    "A call has at least one part.": [
        (
            "tool_parts.py",
            "if len(self._calls[tool_call_id]) != 1 or not all(isinstance(value, str | bool) for _, value in shape):",
        ),
        (
            "open_calls.py",
            "return OpenCall(tool_call_id, *next(iter(claims)), approval_id) if len(claims) <= 1 else None",
        ),
    ],
    "Only the states of approvals come before `input-available`, and their chunks have no provider metadata.": [
        (
            "tool_parts.py",
            'if created or state <= ToolState.INPUT_AVAILABLE or self._reads("call-metadata-in-every-state"):',
        ),
    ],
    "The stop asks again whether the server shuts down, and whether anybody reads.": [
        (
            "manager.py",
            "if self._dispatcher is None or seconds is None or self._closing and remote_run.users or"
            " remote_run.log.ended:",
        ),
    ],
    "No string comes before the empty one.": [
        ("schema.py", 'return "the empty string" if value <= "" else f"the string {json_text(_shortened(value))}"'),
    ],
}
EQUIVALENT: Final = frozenset(mutant for mutants in _REASONS.values() for mutant in mutants)
"""Mutants that behave as the code does: the file and the changed line, stripped."""
_EQUAL_IF_SAME: Final = re.compile(
    r"(\w+\.)*[A-Z]\w*\.[A-Z_]+|(?!True|False)(\w+\.)*[A-Z]\w*[a-z]\w*|str|int|bool|float|list|dict|bytes"
    r"|.+\.__class__|type\(.+\)"
)
"""Enum members and classes, as the code names them: two of them are equal only if they are the same object."""
_AS_EQUALITY: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {ast.Is: ast.Eq, ast.IsNot: ast.NotEq}


class Mutant(NamedTuple):
    """One change of one module."""

    path: Path
    code: str
    mutated: str

    def diff(self) -> str:
        """Return the change as a diff."""
        name = str(self.path)
        return "\n".join(difflib.unified_diff(self.code.splitlines(), self.mutated.splitlines(), name, name, "", "", 1))

    @property
    def name(self) -> tuple[str, str]:
        """The file and the changed lines."""
        old, new = self.code.splitlines(), self.mutated.splitlines()
        changed = [line[2:].strip() for line in difflib.ndiff(old, new) if line.startswith("+ ")]
        return self.path.name, " ".join(changed)

    @property
    def lines(self) -> set[int]:
        """The numbers of the lines of the changed statement (of a block: of its header), which is in a function."""
        first = self._first_line
        statements = [node for node in ast.walk(ast.parse(self.code)) if isinstance(node, ast.stmt | ast.ExceptHandler)]
        around = [node for node in statements if node.lineno <= first <= (node.end_lineno or node.lineno)]
        statement = max(around, key=lambda node: node.lineno)
        body = getattr(statement, "body", None)
        last = body[0].lineno - 1 if body else statement.end_lineno
        return {first, *range(statement.lineno, (last or first) + 1)}

    def changed_node(self) -> tuple[ast.AST, ast.AST]:
        """Return the innermost expression or statement that differs, before and after the change."""
        return _innermost(ast.parse(self.code), ast.parse(self.mutated), self._first_line)

    @property
    def _first_line(self) -> int:
        old, new = self.code.splitlines(), self.mutated.splitlines()
        return next(number for number, (before, after) in enumerate(zip(old, new, strict=False), 1) if before != after)

    @property
    def is_in_interface(self) -> bool:
        """Whether it changes a method that has no body, and is never called."""
        line = self._first_line
        methods = [
            node
            for node in ast.walk(ast.parse(self.code))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.lineno <= line <= (node.end_lineno or line)
        ]
        return any(all(_is_constant(statement) for statement in method.body) for method in methods)

    @property
    def is_equivalent(self) -> bool:
        """Whether no test can kill it."""
        return self.name in EQUIVALENT or _is_identity_as_equality(*self.changed_node())

    def replacements(self) -> list[tuple[types.CodeType, types.CodeType]]:
        """Return the code of the changed function, and of those in it, with the new code; none if it is no function."""
        before, after = list(_functions(compiled(self.code))), list(_functions(compiled(self.mutated)))
        if len(before) != len(after):
            return []
        changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
        return list(_with_inner(*changed[0])) if len(changed) == 1 else []


def compiled(code: str, path: str = "") -> types.CodeType:
    """Compile a module without a warning, such as that for `is` with a number. Raises SyntaxError."""
    with warnings.catch_warnings(action="ignore"):
        return compile(code, path, "exec")


def _innermost(before: ast.AST, after: ast.AST, line: int) -> tuple[ast.AST, ast.AST]:
    while type(before) is type(after):
        children = list(ast.iter_child_nodes(before)), list(ast.iter_child_nodes(after))
        if len(children[0]) != len(children[1]):
            break
        on_line = [pair for pair in zip(*children, strict=True) if _includes(pair[0], line)]
        changed = [pair for pair in on_line if ast.dump(pair[0]) != ast.dump(pair[1])]
        if len(changed) != 1:
            break
        before, after = changed[0]
    return before, after


def _is_constant(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _includes(node: ast.AST, line: int) -> bool:
    """Whether a line is in a node, as far as is known: parameters and the like have no lines themselves."""
    if isinstance(node, ast.operator | ast.unaryop | ast.boolop | ast.cmpop | ast.expr_context):
        return False
    return bool(getattr(node, "lineno", line) <= line <= getattr(node, "end_lineno", line))


def _is_identity_as_equality(before: ast.AST, after: ast.AST) -> bool:
    if not isinstance(before, ast.Compare) or not isinstance(after, ast.Compare):
        return False
    [(number, old, new)] = [
        (number, old, new)
        for number, (old, new) in enumerate(zip(before.ops, after.ops, strict=True))
        if type(old) is not type(new)
    ]
    operands = ast.unparse(before.comparators[number]), ast.unparse([before.left, *before.comparators][number])
    return _AS_EQUALITY.get(type(old)) is type(new) and any(map(_EQUAL_IF_SAME.fullmatch, operands))


def _is_pointless(before: ast.AST) -> bool:
    """Whether a change of it says nothing: a list of parameters, or an expression that has numbers alone."""
    kinds = ast.BinOp | ast.UnaryOp | ast.Constant | ast.operator | ast.unaryop
    is_arithmetic = isinstance(before, ast.BinOp | ast.UnaryOp) and all(
        isinstance(node, kinds) for node in ast.walk(before)
    )
    return is_arithmetic or isinstance(before, ast.arguments)


def _inner(code: types.CodeType) -> list[types.CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]


def _functions(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of the functions of a module or class, and not of those in them."""
    for inner in _inner(code):
        if inner.co_flags & inspect.CO_OPTIMIZED:
            yield inner
        else:
            yield from _functions(inner)


def _with_inner(old: types.CodeType, new: types.CodeType) -> Iterator[tuple[types.CodeType, types.CodeType]]:
    yield old, new
    for before, after in zip(_inner(old), _inner(new), strict=False):
        yield from _with_inner(before, after)


# The sample


def every_mutant() -> Iterator[tuple[Path, str, int]]:
    """Yield the path, operator and number of every change that can be made."""
    operators = {
        name: get_operator(name)() for name in operator_names() if not any(part in name for part in _POINTLESS)
    }
    for source in SOURCES:
        for path in sorted((ROOT / source).glob("*.py")):
            nodes = list(ast_nodes(get_ast(path.read_text(encoding="utf-8"))))
            for name, operator in operators.items():
                count = sum(len(list(operator.mutation_positions(node))) for node in nodes)
                yield from ((path.relative_to(ROOT), name, occurrence) for occurrence in range(count))


def sample(count: int, seed: int) -> list[Mutant]:
    """Return ``count`` mutants that are Python, the same ones for the same code and seed."""
    changes = list(every_mutant())
    random.Random(seed).shuffle(changes)
    mutants: list[Mutant] = []
    for path, name, occurrence in changes:
        code = (ROOT / path).read_text(encoding="utf-8")
        try:
            mutant = Mutant(path, code, mutate_code(code, get_operator(name)(), occurrence))
        except AttributeError:  # cosmic-ray does not know exceptions with a dotted name
            continue
        if not _is_python(mutant.mutated) or mutant in mutants:
            continue
        if not _is_pointless(mutant.changed_node()[0]) and not mutant.is_in_interface:
            mutants.append(mutant)
        if len(mutants) == count:
            break
    return mutants


def _is_python(code: str) -> bool:
    try:
        with warnings.catch_warnings(action="error"):
            compile(code, "", "exec")
    except (SyntaxError, SyntaxWarning):  # `*` is an operator to cosmic-ray also in the parameters of a function
        return False
    return True


# Processes


class Outcome(enum.Enum):
    """What the tests say about a mutant."""

    KILLED = enum.auto()
    TIMED_OUT = enum.auto()
    SURVIVED = enum.auto()


class Job(NamedTuple):
    """The tests of one mutant: ``work`` returns whether one fails."""

    mutant: Mutant
    work: Callable[[], bool]
    seconds: float


def run_jobs(jobs: Iterable[Job]) -> Iterator[tuple[Mutant, Outcome]]:
    """Run each job in its own process, as many at once as there are cores."""
    running: dict[int, tuple[Job, float]] = {}

    def ended(child: int, outcome: Outcome) -> tuple[Mutant, Outcome]:
        job, started = running.pop(child)
        with PROGRESS.open("a", encoding="utf-8") as progress:
            progress.write(f"{outcome.name} after {time.monotonic() - started:.1f} s: {job.mutant.name}\n")
        return job.mutant, outcome

    pending = iter(jobs)
    job = next(pending, None)
    while running or job is not None:
        while job is not None and len(running) < AT_ONCE:
            running[fork(job.work)] = job, time.monotonic()
            job = next(pending, None)
        for child, (current, started) in list(running.items()):
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                yield ended(child, Outcome.SURVIVED if os.waitstatus_to_exitcode(status) == 0 else Outcome.KILLED)
            elif time.monotonic() > started + current.seconds:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                yield ended(child, Outcome.TIMED_OUT)
        time.sleep(0.01)


def fork(work: Callable[[], bool]) -> int:
    """Start a process in its own group, whose exit code is 0 if ``work`` returns False, and return its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        code = int(work())
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def in_background(work: Callable[[], Any], result: Path) -> Any:
    """Run work in a process, and return what it returns."""

    def write() -> bool:
        result.write_bytes(pickle.dumps(work()))
        return False

    _, status = os.waitpid(fork(write), 0)
    if status:
        raise SystemExit(f"the tests could not be run without any change: see {LOG}")
    return pickle.loads(result.read_bytes())


def print_to_log() -> None:
    """Write what this process and its children print to the log."""
    log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)


# Mutants of functions: judged by tests that are collected already


class Reached(NamedTuple):
    """What tests do without a change: the lines that each reaches, by file, the seconds of each, their files' digests.

    What runs while tests are collected has the name ``_AT_IMPORT``.
    """

    lines: dict[str, dict[str, set[int]]]
    seconds: dict[str, float]
    digests: dict[str, str]

    def names(self, path: Path, lines: Iterable[int]) -> set[str]:
        """Return the tests that reach one of these lines of a file."""
        numbers, file = set(lines), str(path)
        return {name for name, files in self.lines.items() if not numbers.isdisjoint(files.get(file, ()))}


def digest_of(paths: Iterable[Path]) -> str:
    """Return a digest of the contents of files."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(paths))).hexdigest()[:16]


def recorded(session: pytest.Session, work: Callable[[Sequence[pytest.Item]], Reached]) -> Reached:
    """Return what the tests reach: as an earlier run of the same code recorded it, or by running them."""
    record = LOG.with_name(f"mutants-{digest_of((ROOT / 'src/usechat').rglob('*.py'))}.reached")
    reached: Reached = pickle.loads(record.read_bytes()) if record.exists() else Reached({}, {}, {})
    digests = {str(path): digest_of([path]) for path in {item.path for item in session.items}}
    names = {item.nodeid for item in session.items if reached.digests.get(str(item.path)) == digests[str(item.path)]}
    if missing := [item for item in session.items if item.nodeid not in names]:
        new: Reached = in_background(functools.partial(work, missing), record)
        lines = {name: files for name, files in reached.lines.items() if name in names}
        seconds = {name: seconds for name, seconds in reached.seconds.items() if name in names}
        reached = Reached(lines | new.lines, seconds | new.seconds, digests)
        record.write_bytes(pickle.dumps(reached))
    return reached


class Loaded:
    """The functions that are loaded, and the caches of functions."""

    def __init__(self) -> None:
        self._functions: dict[str, list[types.FunctionType]] = {}
        self._caches: list[Any] = []
        for thing in gc.get_objects():
            if type(thing) is types.FunctionType:  # `isinstance` asks the object, and those of the tests raise
                self._functions.setdefault(thing.__code__.co_filename, []).append(thing)
            elif type(thing) is _CACHE:
                self._caches.append(thing)

    def changed_by(self, mutant: Mutant) -> list[tuple[types.FunctionType, types.CodeType]]:
        """Return the functions that a mutant changes, with their new code; none if it changes no function."""
        replacements = mutant.replacements()
        return [
            (function, new)
            for function in self._functions.get(str(ROOT / mutant.path), ())
            for old, new in replacements
            if function.__code__ == old
        ]

    def replace(self, changes: Iterable[tuple[types.FunctionType, types.CodeType]]) -> None:
        """Change functions, and forget what any function has cached."""
        for cache in self._caches:
            cache.cache_clear()
        for function, code in changes:
            function.__code__ = code


class Judge:
    """A plugin of pytest that runs the collected tests once, and then again for each mutant that can be patched in."""

    def __init__(self, mutants: Sequence[Mutant]) -> None:
        self._mutants = mutants
        self._coverage = coverage.Coverage(data_file=None, source_pkgs=["usechat"], config_file=False)
        self.outcomes: dict[Mutant, Outcome] = {}

    def run(self) -> dict[Mutant, Outcome]:
        """Collect the tests, and return what they say about each mutant of a function."""
        print_to_log()
        self._coverage.start()
        code = pytest.main([*OPTIONS, *TESTS], plugins=[self])
        if code:
            raise SystemExit(f"pytest ends with {code}")
        return self.outcomes

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests for each mutant instead of once."""
        loaded = Loaded()
        reached = recorded(session, functools.partial(self._reached, session, loaded))
        self._coverage.stop()
        gc.freeze()
        jobs = [job for mutant in self._mutants if (job := self._job(session, mutant, reached, loaded))]
        for mutant, outcome in run_jobs(jobs):
            self.outcomes[mutant] = outcome
        return True

    def _reached(self, session: pytest.Session, loaded: Loaded, items: Sequence[pytest.Item]) -> Reached:
        seconds: dict[str, float] = {}
        for item in items:
            started = time.monotonic()
            self._coverage.switch_context(item.nodeid)
            loaded.replace(())  # else only the first test would reach what a function has cached
            if run_items(session, [item]):
                raise SystemExit(f"{item.nodeid} fails without any change")
            seconds[item.nodeid] = time.monotonic() - started
        self._coverage.stop()
        data = self._coverage.get_data()
        lines: dict[str, dict[str, set[int]]] = {}
        for file in data.measured_files():
            for line, names in data.contexts_by_lineno(file).items():
                for name in names:
                    lines.setdefault(name, {}).setdefault(file, set()).add(line)
        return Reached(lines, seconds, {})

    def _job(self, session: pytest.Session, mutant: Mutant, reached: Reached, loaded: Loaded) -> Job | None:
        changes = loaded.changed_by(mutant)
        names = reached.names(ROOT / mutant.path, mutant.lines) if changes else {_AT_IMPORT}
        if _AT_IMPORT in names:
            return None
        own, package = tests_of(mutant.path)
        items = [item for item in session.items if item.nodeid in names and item.nodeid.startswith(package)]

        def order(item: pytest.Item) -> tuple[bool, bool, float]:
            seconds = reached.seconds[item.nodeid]
            return seconds > QUICK, not item.nodeid.startswith(own), seconds

        items.sort(key=order)
        seconds = sum(reached.seconds[item.nodeid] for item in items)

        def work() -> bool:
            loaded.replace(changes)
            return run_items(session, items)

        return Job(mutant, work, max(LEAST_SECONDS, SLOWDOWN * seconds))


def run_items(session: pytest.Session, items: Sequence[pytest.Item]) -> bool:
    """Run collected tests until one fails; return whether one did."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return True
    return False


# Mutants of what runs while a module is imported


def tests_of(path: Path) -> tuple[tuple[str, ...], str]:
    """Return the tests of a module, and those of its package."""
    package = Path("tests", *path.parts[2:-1])
    own = [str(test) for test in sorted(package.glob(f"test_{path.stem}*.py"))]
    if path.stem in _STREAM:
        own.append("tests/protocol/stream")
    return tuple(own), str(package)


def import_job(mutant: Mutant) -> Job:
    """Return the job that imports the changed module, and runs the tests of its package."""
    own, package = tests_of(mutant.path)
    others = [package, "--ignore=tests/runs/redis", *(f"--ignore={name}" for name in own)]

    def work() -> bool:
        print_to_log()
        import_changed(mutant)
        return any(pytest.main([*OPTIONS, *arguments]) != 0 for arguments in (own, others) if arguments)

    return Job(mutant, work, IMPORT_SECONDS)


def import_changed(mutant: Mutant) -> None:
    """Make this process import the changed code of the module."""
    path = str(ROOT / mutant.path)
    get_code = importlib.machinery.SourceFileLoader.get_code

    def changed(self: importlib.machinery.SourceFileLoader, fullname: str) -> types.CodeType | None:
        return compiled(mutant.mutated, path) if self.path == path else get_code(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = changed  # type: ignore[assignment,method-assign]


def say(text: str) -> None:
    """Print a line at once, also into a file."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(count: int, seed: int) -> int:
    """Try ``count`` mutants, and print the survivors and the share that was killed."""
    os.chdir(ROOT)
    LOG.parent.mkdir(exist_ok=True)
    for name in LIBRARIES:
        __import__(name)
    candidates = sample(count, seed)
    mutants = [mutant for mutant in candidates if not mutant.is_equivalent]
    outcomes: dict[Mutant, Outcome] = in_background(Judge(mutants).run, LOG.with_suffix(".outcomes"))
    say(f"{len(outcomes)} mutants of functions are judged; of imports there are {len(mutants) - len(outcomes)}")
    outcomes.update(run_jobs([import_job(mutant) for mutant in mutants if mutant not in outcomes]))
    survivors = [mutant for mutant, outcome in outcomes.items() if outcome is Outcome.SURVIVED]
    for mutant in survivors:
        say(f"survived: {mutant.name}\n{mutant.diff()}\n")
    slow = sum(outcome is Outcome.TIMED_OUT for outcome in outcomes.values())
    killed = len(mutants) - len(survivors)
    share = killed / len(mutants)
    say(
        f"{killed} of {len(mutants)} mutants killed ({slow} of them by the clock): {share:.1%}; "
        f"{len(candidates) - len(mutants)} equivalent, seed {seed}"
    )
    return 0 if share >= LEAST_SHARE else 1


if __name__ == "__main__":
    sys.exit(main(int(os.environ.get("MUTANTS", "200")), int(os.environ.get("SEED", "1"))))
