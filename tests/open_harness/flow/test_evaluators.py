"""Expressions that call functions are evaluated in processes that can be killed."""

import asyncio
import threading
import time
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

from tests.open_harness.flow_runs import constant, echo, edge, flow, run
from usechat.open_harness.engine.runtime import FlowRuntime
from usechat.open_harness.errors import ExpressionFailed
from usechat.open_harness.flow import evaluation, evaluators
from usechat.open_harness.flow.evaluation import write_frame
from usechat.open_harness.flow.evaluators import Requester, evaluate_in_process
from usechat.open_harness.flow.expressions import Scope, evaluate, read_syntax
from usechat.open_harness.nodes.builtin import default_registry
from usechat.open_harness.nodes.context import NodeContext
from usechat.protocol.values import json_value

WORDS = " ".join(["word"] * 14) + "!"
EVIL = r"$contains(flow.input.message, /^(\w+\s?)*$/)"
SCOPE = Scope({"flow": {"input": {"message": WORDS}}, "a": {"list": [1, 2]}})


@pytest.mark.parametrize(
    ("text", "is_trivial", "names"),
    [
        ("flow.input.topic", True, {"flow", "input", "topic"}),
        ("a.list[0] = -1 and $iteration < 3", True, {"a", "list"}),
        ("a.n > 2 ? 'many' : b.text", True, {"a", "n", "b", "text"}),
        ("(a.n = 1) or (true)", True, {"a", "n"}),
        ("a.(list.x)", False, {"a", "list", "x"}),
        ("a.list[x = 1]", False, {"a", "list", "x"}),
        ("$uppercase(a.text)", False, {"a", "text"}),
        ("$map(a.list, function($v) { $v.x })", False, {"a", "list", "x"}),
        ("a.text & b.text", False, {"a", "text", "b"}),
        ("{'x': a}", False, {"a"}),
        ("a@$x.b", False, {"a", "b"}),
        ("$contains(a, /b/)", False, {"a"}),
        ("$substring(a.text, 1, 2)", False, {"a", "text"}),
        ("$", False, None),
        ("$$.a", False, {"a"}),
        ("$.a & $$.b.c", False, {"a", "b", "c"}),
        ("$$[0].a", False, None),
        ("$$.*", False, None),
        ("$$ & a", False, None),
        ("*.text", False, None),
        ("**.text", False, None),
        ("$keys()", False, None),
        ("$lookup('a')", False, None),
        ("$string()", False, None),
        ("$each(function($v) { $v })", False, None),
        ("$string(a.n)", False, {"a", "n"}),
        ("$lookup(a, 'n')", False, {"a"}),
        ("$sift(a, function($v) { true })", False, {"a"}),
        ("$substring(a.text, 1)", False, {"a", "text"}),
        ("$split(a.text, ',')", False, {"a", "text"}),
        ("$round(a.n)", False, {"a", "n"}),
        ("$eval('a')", False, None),
    ],
)
def test_the_syntax_tells_whether_an_expression_is_trivial_and_what_it_can_read(
    text: str, is_trivial: bool, names: set[str] | None
) -> None:
    syntax = read_syntax(text)
    assert (syntax.is_trivial, syntax.names) == (is_trivial, names if names is None else frozenset(names))


@pytest.mark.parametrize(
    ("text", "value"), [("$count($keys())", 2), ("$lookup('a').list", [1, 2]), ("$count(a.list)", 2)]
)
async def test_an_evaluator_sees_what_the_expression_reads(text: str, value: Any) -> None:
    assert await evaluate(text, SCOPE) == value


@pytest.mark.parametrize(
    ("number", "text"),
    [(2.0, '{"n":2}'), (-0.0, '{"n":0}'), (2.5, '{"n":2.5}'), (1e20, '{"n":100000000000000000000}'), (2**70, None)],
)
async def test_an_evaluator_reads_numbers_as_javascript_writes_them(number: float, text: str | None) -> None:
    scope = Scope({"a": {"n": number}})
    assert await evaluate("$string(a)", scope) == (text or f'{{"n":{number}}}')
    if number == 2:
        assert await evaluate("$count([1..a.n])", scope) == 2


async def test_a_regular_expression_that_takes_for_ever_is_killed_while_others_work() -> None:
    """Evaluated in this process, nothing else would run for half a minute."""
    longest, before = 0.0, time.monotonic()
    evaluating = asyncio.create_task(evaluate(EVIL, SCOPE, 500))
    while not evaluating.done():
        await asyncio.sleep(0.01)
        now = time.monotonic()
        longest, before = max(longest, now - before), now
    with pytest.raises(ExpressionFailed, match=r"timed out after 500 ms"):
        await evaluating
    assert longest < 5
    assert await evaluate("$uppercase('fine')", SCOPE) == "FINE"


async def test_the_time_limit_of_a_node_is_that_of_its_expressions() -> None:
    node = echo("a", f"{{{{ {EVIL} }}}}", policy={"timeoutMs": 300})
    log, snapshot = await run(flow(node), {"message": WORDS})
    assert "timed out after 300 ms" in snapshot["outputs"]["a"]["error"]
    assert log.brief()[-1] == "flow:complete failed"


async def test_an_expression_that_needs_too_much_memory_fails_alone() -> None:
    with pytest.raises(ExpressionFailed, match="too much memory"):
        await evaluate("$pad('x', 600000000)", SCOPE)
    assert await evaluate("$uppercase('fine')", SCOPE) == "FINE"


@pytest.mark.parametrize("text", ["function($x) { $x }", "[function($x) { $x }][0]", "$replace(?, 'a', 'b')"])
async def test_a_function_is_nothing_as_a_value(text: str) -> None:
    assert await evaluate(text, Scope({})) is None


async def test_a_value_that_is_nested_too_deeply_fails_alone() -> None:
    with pytest.raises(ExpressionFailed, match="nested too deeply"):
        await evaluate("$reduce([1..5000], function($a, $b) { {'x': $a} })", SCOPE)
    assert await evaluate("$uppercase('fine')", SCOPE) == "FINE"


async def test_a_function_may_call_itself_a_hundred_times_and_fails_alone_if_it_never_ends() -> None:
    """jsonata in JavaScript has no limit but the stack."""
    recursive = "($f := function($n) {{ $n <= 1 ? 1 : 1 + $f($n - 1) }}; $f({}))"
    assert await evaluate(recursive.format(100), SCOPE) == 100
    for _ in range(2):
        with pytest.raises(ExpressionFailed, match="nested too deeply"):
            await evaluate(recursive.format(100_000), SCOPE)
    assert await evaluate(recursive.format(100), SCOPE) == 100


@pytest.mark.parametrize("text", ["half an emoji: \ud83d", "\x00 \u2028 \N{GRINNING FACE}"])
async def test_texts_of_every_kind_reach_an_evaluator_and_come_back(text: str) -> None:
    assert await evaluate("$string(a) & item", Scope({"a": text}, own={"item": text})) == text + text


async def test_a_time_limit_holds_for_each_request_of_many() -> None:
    """One timer serves them all; it was set for a later time, or for an earlier one."""
    requester = Requester("", "limits")
    scope = Scope(SCOPE.values, requester=requester)
    for before in (60_000, 1_000):
        for _ in range(3):
            assert await evaluate("$uppercase('fine')", scope, before) == "FINE"
        async with asyncio.timeout(30):
            with pytest.raises(ExpressionFailed, match="timed out after 2000 ms"):
                await evaluate(EVIL, scope, 2_000)


async def test_the_time_limit_of_a_small_request_is_not_that_of_a_large_one_after_it() -> None:
    requester = Requester("", "limits")
    own: dict[str, Any] = {"values": {}, "variables": {}}
    for limit in (60_000, 1_000):  # the first one waits for the process
        assert await evaluate_in_process(["$uppercase('x')"], {}, own, limit, requester) == [{"value": "X"}]
    slow, values = "$count(list) + $count([1..200000].($ * 2))", {"list": list(range(100_000))}
    assert await evaluate_in_process([slow], values, own, 60_000, requester) == [{"value": 300_000}]


def test_a_system_without_a_limit_on_memory_evaluates_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_limits: object) -> None:
        raise ValueError("current limit exceeds maximum limit")  # what macOS answers

    monkeypatch.setattr("resource.setrlimit", refuse)
    evaluation.limit_memory()


@pytest.mark.parametrize("where", ["node", "edge"])
async def test_a_stop_does_not_wait_for_a_condition(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("usechat.open_harness.flow.expressions.LIMIT_MS", 60_000.0)
    condition = {"when": EVIL}
    on_node, on_edge = (condition, {}) if where == "node" else ({}, condition)
    runtime = FlowRuntime(flow(constant("a", 1), constant("b", 2, **on_node), edges=(edge("a->b", **on_edge),)))
    start = asyncio.Event()
    runtime.on_event(lambda event: start.set() if event["type"] == "node:complete" else None)
    running = asyncio.create_task(runtime.run({"message": WORDS}))
    await start.wait()
    await asyncio.sleep(0.2)  # into the evaluation; a stop before it is no less a stop
    runtime.stop()
    async with asyncio.timeout(30):
        assert (await running)["status"] == "aborted"


async def test_a_pause_waits_for_a_condition_so_that_no_edge_is_lost() -> None:
    slow = "$count([1..200000].($ * 2)) > 0"
    runtime = FlowRuntime(flow(constant("a", 1), constant("b", 2), edges=(edge("a->b", when=slow),)))
    runtime.on_event(
        lambda event: runtime.pause() if event["type"] == "node:complete" and event["nodeId"] == "a" else None
    )
    assert (await runtime.run({}))["nodeStatus"] == {"a": "done", "b": "pending"}
    assert (await runtime.resume())["outputs"] == {"a": {"value": 1}, "b": {"value": 2}}


async def test_hostile_expressions_of_one_person_do_not_block_those_of_others() -> None:
    """They queue for the person's share of the processes, and the time in the queue counts into their own limits."""
    values = SCOPE.values
    hostile = [
        asyncio.create_task(evaluate(EVIL, Scope(values, requester=Requester("mallory", f"r{number}")), 60_000))
        for number in range(12)
    ]
    try:
        await asyncio.sleep(0)
        for _ in range(3):
            assert await evaluate("$uppercase('fine')", Scope(values, requester=Requester("ann", "r"))) == "FINE"
        with pytest.raises(ExpressionFailed, match="timed out after 200 ms"):
            async with asyncio.timeout(20):
                await evaluate("$uppercase('late')", Scope(values, requester=Requester("mallory", "r")), 200)
        assert not any(each.done() for each in hostile)
    finally:
        for each in hostile:
            each.cancel()
        await asyncio.gather(*hostile, return_exceptions=True)


@pytest.mark.parametrize("ends", ["cancelled", "timed out"])
async def test_expressions_that_no_longer_wait_for_a_process_leave_it_to_others(ends: str) -> None:
    mallory = Scope(SCOPE.values, requester=Requester("mallory", "r"))
    running = [asyncio.create_task(evaluate(EVIL, mallory, 60_000)) for _ in range(12)]
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(evaluate(EVIL, mallory, 100 if ends == "timed out" else 60_000)) for _ in range(4)]
    await asyncio.sleep(0)
    for each in [*running, *(waiting if ends == "cancelled" else [])]:  # all at once: some wait, some are just let in
        each.cancel()
    await asyncio.gather(*running, *waiting, return_exceptions=True)
    async with asyncio.timeout(60):
        assert await asyncio.gather(*(evaluate("$uppercase('y')", mallory, 60_000) for _ in range(9))) == ["Y"] * 9


async def test_the_condition_of_an_edge_has_the_limit_of_the_node_to_which_it_leads() -> None:
    described = flow(constant("a", 1), constant("b", 2, policy={"timeoutMs": 300}), edges=(edge("a->b", when=EVIL),))
    _, snapshot = await run(described, {"message": WORDS})
    assert "timed out after 300 ms" in snapshot["outputs"]["b"]["error"]


async def test_a_cancelled_evaluation_ends_its_evaluator() -> None:
    evaluating = asyncio.create_task(evaluate(EVIL, SCOPE))
    assert await evaluate("$uppercase('x')", SCOPE) == "X"  # by another evaluator, at the same time
    evaluating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await evaluating
    assert await asyncio.gather(*(evaluate("$uppercase('y')", SCOPE) for _ in range(9))) == ["Y"] * 9


# Lists


@pytest.mark.parametrize(
    ("text", "count", "is_sent"),
    [
        ("a.list.x", 1_000, False),
        ("a.list.x", 1_001, True),
        ("a.list", 1_001, False),
        ("a.list.x = 1 or a.other", 1_001, True),
        ("a.nested.x", 1, True),
    ],
)
async def test_a_path_through_a_long_list_is_evaluated_in_an_evaluator(
    text: str, count: int, is_sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = count_requests(monkeypatch)
    items = [{"x": number} for number in range(count)]
    scope = Scope({"a": {"list": items, "nested": [items]}})
    value = await evaluate(text, scope)
    assert (value, requests) == (evaluation.evaluate(text, scope.values, {}), [1] * is_sent)


@pytest.mark.parametrize(("count", "is_read_in_a_thread"), [(10, False), (100_000, True)])
async def test_a_large_result_is_not_read_on_the_event_loop(
    count: int, is_read_in_a_thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def json_value_with_thread(value: Any) -> Any:
        threads.append(threading.current_thread())
        return json_value(value)

    monkeypatch.setattr("usechat.open_harness.flow.evaluators.json_value", json_value_with_thread)
    assert await evaluate(f"[1..{count}]", Scope({})) == list(range(1, count + 1))
    assert [each is not threading.main_thread() for each in threads] == [is_read_in_a_thread]


def count_requests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the number of expressions is added of each request to an evaluator."""
    requests: list[int] = []

    async def counted(*arguments: Any) -> Any:
        requests.append(len(arguments[0]))
        return await evaluate_in_process(*arguments)

    monkeypatch.setattr("usechat.open_harness.flow.expressions.evaluate_in_process", counted)
    return requests


def for_each(text: str, *, count: int = 3, when: str | None = None) -> dict[str, Any]:
    """A flow whose second node runs for each of the numbers from 0 on."""
    each = echo("each", text) if when is None else echo("each", text, when=when)
    items = edge("list->each", forEach={"in": "{{ list.value }}", "as": "item"})
    return flow(constant("list", [{"n": n} for n in range(count)]), each, edges=(items,))


async def texts(described: dict[str, Any]) -> list[Any]:
    _, snapshot = await run(described)
    return [each.get("output", each).get("text", each) for each in snapshot["outputs"]["each"]["iterations"]]


@pytest.mark.parametrize("is_parallel", [False, True])
@pytest.mark.parametrize("item", ["item", "$$.item"])
async def test_the_functions_of_an_item_are_evaluated_in_one_request(
    item: str, is_parallel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = count_requests(monkeypatch)
    text = f"{{{{ $string({item}.n) }}}} of {{{{ $count(list.value) }}}}"
    described = {**for_each(text, count=20), "parallel": is_parallel}
    assert await texts(described) == [f"{n} of 20" for n in range(20)]
    assert requests == [2] * 20


async def test_an_expression_that_reads_earlier_results_sees_them() -> None:
    assert await texts(for_each("{{ $count(each.iterations) }}.")) == ["0.", "1.", "2."]


async def test_an_item_sees_the_state_that_the_one_before_it_left() -> None:
    async def count(fields: Any, context: NodeContext) -> Any:
        context.state.set("seen.count", context.state.get("seen.count") + 1)
        return fields

    registry = default_registry()
    registry.add("count", count)
    described = for_each("", count=20)
    described["nodes"][1] |= {"type": "count", "input": {"text": "{{ $string(state.seen.count) }} of {{ item.n }}"}}
    described["state"] = {"initial": {"seen": {"count": 0}, "other": list(range(100))}}
    snapshot = await FlowRuntime(described, registry=registry).run({})
    outputs = [each["output"]["text"] for each in snapshot["outputs"]["each"]["iterations"]]
    assert outputs == [f"{n} of {n}" for n in range(20)]


async def test_what_an_evaluator_knows_of_a_run_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each item reads a long list and all earlier results; sent each time, they would be 20 MB."""
    sizes: list[int] = []

    def counted(stream: Any, content: bytes) -> None:
        sizes.append(len(content))
        write_frame(stream, content)

    monkeypatch.setattr("usechat.open_harness.flow.evaluation.write_frame", counted)
    outputs = await texts(for_each("{{ $count(list.value) + $count(each.iterations) }}.", count=1000))
    assert outputs == [f"{1000 + n}." for n in range(1000)]
    assert (len(sizes) >= 1000, sum(sizes) < 1_000_000) == (True, True)


@pytest.mark.parametrize("size", [1_000, 100_000, 10_000_000])
async def test_requests_and_answers_may_be_of_any_size(size: int) -> None:
    requester = Requester("", "sizes")
    for _ in range(2):
        assert await evaluate(f"$pad('x', {size})", Scope({}, requester=requester)) == "x".ljust(size)
        item = Scope({}, own={"item": "x" * size}, requester=requester)
        assert await evaluate("$length(item)", item) == size


async def test_runs_that_share_an_evaluator_do_not_see_each_others_values() -> None:
    scopes = [Scope({"a": {"n": number}}, requester=Requester("", f"run {number}")) for number in range(3)]
    assert [await evaluate("$string(a.n)", scope) for scope in scopes * 2] == ["0", "1", "2"] * 2
    unnamed = [Scope({"a": {"n": number}}) for number in range(2)]
    assert [await evaluate("$string(a.n)", scope) for scope in unnamed] == ["0", "1"]


async def test_in_a_parallel_flow_an_item_sees_what_another_node_has_said_meanwhile() -> None:
    start, ended = asyncio.Event(), asyncio.Event()

    async def wait(fields: Any) -> Any:
        if fields["n"] == 1:
            start.set()
            await ended.wait()
        return fields["seen"]

    async def other(_fields: Any) -> str:
        await start.wait()
        return "done"

    registry = default_registry()
    registry.add("wait", wait)
    registry.add("other", other)
    described = flow(
        constant("list", [0, 1, 2]),
        {"id": "each", "type": "wait", "input": {"n": "{{ n }}", "seen": "{{ $string(n) & $string(other) }}"}},
        {"id": "other", "type": "other", "input": {}},
        edges=(edge("list->each", forEach={"in": "{{ list.value }}", "as": "n"}),),
    )
    described["parallel"] = True
    runtime = FlowRuntime(described, registry=registry)
    runtime.on_event(lambda event: ended.set() if event.get("nodeId") == "other" and "output" in event else None)
    async with asyncio.timeout(60):
        snapshot = await runtime.run({})
    assert [each["output"] for each in snapshot["outputs"]["each"]["iterations"]] == ["0", "1", "2done"]


async def test_the_clock_goes_on_after_another_expression_was_compiled() -> None:
    requester = Requester("", "clock")
    for text in ("$millis()", "$count([1])"):
        await evaluate(text, Scope({}, requester=requester))
    began = time.time_ns() // 1_000_000
    while (now := time.time_ns() // 1_000_000) < began + 5:
        pass
    assert await evaluate("$millis()", Scope({}, requester=requester)) >= now


async def test_one_item_that_takes_too_long_fails_alone() -> None:
    """The message matches for ever; it is in one item."""
    described = for_each(r"{{ $string($contains(item.text, /^(\w+\s?)*$/)) }}")
    described["nodes"][0]["input"]["value"] = [{"text": text} for text in ("a b", WORDS, "c")]
    described["nodes"][1]["policy"] = {"timeoutMs": 3000, "continueOnError": True}
    _, snapshot = await run(described)
    outputs = [each.get("output", {}).get("text") for each in snapshot["outputs"]["each"]["iterations"]]
    assert outputs == ["true", None, "true"]


@pytest.mark.parametrize("watches", [True, False], ids=["watches pipes", "cannot watch pipes, as on Windows"])
@pytest.mark.parametrize("loop", [name for name in ("asyncio", "uvloop") if find_spec(name)])
def test_an_evaluator_takes_small_and_large_requests_in_turns_on_every_event_loop(
    loop: str, watches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle: list[Any] = []
    monkeypatch.setattr(evaluators, "_CAN_WATCH_PIPES", watches)
    monkeypatch.setattr(evaluators, "_idle", idle)

    async def sizes() -> list[Any]:
        results = []
        for size in (2, 100_000, 2, 100_000):
            values = {"list": list(range(size))}
            [answer] = await evaluate_in_process(
                ["$count(list)"], values, {"values": {}, "variables": {}}, 10_000, Requester(run_id="sizes")
            )
            results.append(answer["value"])
        return results

    assert import_module(loop).run(sizes()) == [2, 100_000, 2, 100_000]
    assert import_module(loop).run(sizes()) == [2, 100_000, 2, 100_000]  # by the evaluator that the first loop used
    idle.pop().close()


def test_an_evaluator_can_be_killed_after_its_event_loop_was_closed() -> None:
    """A coroutine that nobody awaits any more is closed at any time."""

    async def started() -> Any:
        evaluator = evaluators._Evaluator()  # noqa: SLF001
        await evaluator.wait_until_ready()
        return evaluator

    evaluator = asyncio.run(started())
    evaluator.kill()
    assert evaluator._process.wait(30) < 0  # noqa: SLF001


async def test_event_loops_of_other_threads_have_evaluators_of_their_own() -> None:
    async def shouted(text: str) -> list[Any]:
        return [await evaluate(f"$uppercase('{text}')", Scope({})) for _ in range(20)]

    elsewhere = asyncio.to_thread(lambda: asyncio.run(shouted("b")))
    assert [*await asyncio.gather(shouted("a"), elsewhere, shouted("c"))] == [["A"] * 20, ["B"] * 20, ["C"] * 20]
    assert await shouted("d") == ["D"] * 20


async def test_an_evaluator_that_the_system_has_killed_while_it_was_idle_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    idle: list[Any] = []
    monkeypatch.setattr(evaluators, "_idle", idle)
    assert await evaluate("$uppercase('x')", Scope({})) == "X"
    idle[0]._process.kill()  # noqa: SLF001 (as the system does when memory runs out)
    async with asyncio.timeout(30):
        while idle:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert await evaluate("$uppercase('x')", Scope({})) == "X"
    idle.pop().close()
