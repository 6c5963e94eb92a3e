"""K3's chat encoding for training and evaluation: a request as segments, an answer as segments, an answer read back.

The prompt is what `k3run --render` prints (test_model.py compares); src/text/chat.c is the program's own.
A segment is (text, control): control segments are one marker, the others are encoded each on its own.
"""
import json
import re

OPEN, CLOSE, SEP, END = "<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"
EFFORT = (
    "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
    "supported values include `low`, `medium`, `high`, and `max`.\nNow the system is invoked with `thinking_effort=%s`."
)
TOOLS = "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n%s\n```"
CHOICE = {
    "required": "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message.",
    "none": "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message.",
}
FORMAT = (
    "The system is invoked with `response_format=%s`.\nYour response must be raw JSON data without markdown code blocks "
    "(```json) or any additional formatting."
)
SCHEMA = "\nThe JSON data must match the following schema:\n```json\n%s\n```"


def compact(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def opened(tag, **attributes):
    yield OPEN, True
    yield tag, False
    for key, value in attributes.items():
        yield " " + key, False
        yield '="', False
        yield str(value).replace("&", "&amp;").replace('"', "&quot;"), False
        yield '"', False
    yield SEP, True


def closed(tag):
    yield from ((CLOSE, True), (tag, False), (SEP, True))


def message(role, body, **attributes):
    yield from opened("message", role=role, **attributes)
    if body:
        yield body, False
    yield from closed("message")
    yield END, True


def kind(value):
    names = {str: "string", bool: "boolean", int: "number", float: "number", dict: "object", list: "array"}
    return names.get(type(value), "null")


def pieces(text):
    """A text is one segment; a list is what the model is taught to write piece by piece, for example letter by letter."""
    return ((t, False) for t in ([text] if isinstance(text, str) else text))


def answer(m, thinking, whole=False):
    """What the model says, from behind the tag that the generation prompt opens (whole: with the message's tag)."""
    if whole:
        yield from opened("message", role="assistant")
    if thinking:
        if whole:
            yield from opened("think")
        if m.get("reasoning"):
            yield from pieces(m["reasoning"])
        yield from closed("think")
    if whole or thinking:
        yield from opened("response")
    if m.get("content"):
        yield from pieces(m["content"])
    yield from closed("response")
    if m.get("calls"):
        yield from opened("tools")
        for i, (name, arguments) in enumerate(m["calls"]):
            yield from opened("call", tool=name, index=i + 1)
            for key, value in arguments.items():
                yield from opened("argument", key=key, type=kind(value))
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                if text:
                    yield text, False
                yield from closed("argument")
            yield from closed("call")
        yield from closed("tools")
    yield from closed("message")
    yield END, True


def prompt(request):
    """request: messages, tools, thinking, thinking_effort, tool_choice, response_format as `k3run --render` takes them;
    assistant messages hold reasoning, content and calls [(name, arguments)], tool messages tool and content."""
    thinking = request.get("thinking", True)
    if request.get("tools"):
        yield from message("system", TOOLS % compact(request["tools"]), type="tool-declare")
    if thinking and request.get("thinking_effort"):
        yield from message("system", EFFORT % request["thinking_effort"], type="thinking-effort")
    index = 0
    for m in request["messages"]:
        index = index + 1 if m["role"] == "tool" else 0
        if m["role"] == "assistant":
            yield from answer(m, thinking, whole=True)
        elif m["role"] == "tool":
            yield from message("tool", m["content"], tool=m["tool"], index=index)
        else:
            yield from message(m["role"], m["content"])
    if request.get("tool_choice") in CHOICE:
        yield from message("system", CHOICE[request["tool_choice"]], type="tool-choice")
    form = request.get("response_format")
    if form:
        body = FORMAT % form["type"]
        if form["type"] == "json_schema":
            body += SCHEMA % compact(form["json_schema"]["schema"])
        yield from message("system", body, type="response-format")
    yield from opened("message", role="assistant")
    yield from opened("think" if thinking else "response")


def openai(request):
    """The request as the programs take it: tool calls with ids, arguments as text."""
    out, ids = dict(request, messages=[]), []
    for m in request["messages"]:
        m = dict(m)
        if m["role"] == "assistant":
            ids = [f"call_{i}" for i in range(len(m.get("calls", ())))]
            calls = [
                {"id": i, "type": "function", "function": {"name": n, "arguments": json.dumps(a, ensure_ascii=False)}}
                for i, (n, a) in zip(ids, m.pop("calls", ()))
            ]
            m["reasoning_content"] = m.pop("reasoning", "")
            m.update({"tool_calls": calls} if calls else {})
            results = iter(ids)
        elif m["role"] == "tool":
            m["tool_call_id"] = next(results)
        out["messages"].append(m)
    return out


def encode(segments, tokenizer):
    ids = []
    for text, control in segments:
        ids += [tokenizer.special[text]] if control else tokenizer.encode(text)
    return ids


def read(ids, tokenizer, thinking):
    """(reasoning, content, calls, whole) of the ids that a model emitted before a stop id; whole: every block was closed
    and nothing stands behind the message."""
    marks = {tokenizer.special[t]: t for t in (OPEN, CLOSE, SEP)}
    items, text = [], []  # text, mark, text, mark, ... text
    for i in ids:
        if i in marks:
            items += [tokenizer.decode(text), marks[i]]
            text = []
        else:
            text.append(i)
    items.append(tokenizer.decode(text))
    found, calls, argument = {"think": "", "response": ""}, [], None
    stack, whole, at = ["message", "think" if thinking else "response"], True, 0
    while at < len(items):
        if items[at] in (OPEN, CLOSE):
            if items[at + 2 : at + 3] != [SEP]:
                whole = False
                break
            name, attributes = items[at + 1].split(" ")[0], dict(re.findall(r' (\w+)="([^"]*)"', items[at + 1]))
            if items[at] == CLOSE:
                whole = whole and stack[-1:] == [name]
                stack = stack[:-1]
            else:
                stack.append(name)
                if name == "call":
                    calls.append((attributes.get("tool"), {}))
                elif name == "argument" and calls:
                    argument = attributes.get("key"), attributes.get("type")
                    calls[-1][1][argument[0]] = ""
            at += 3
            continue
        if items[at] and stack:
            if stack[-1] in found:
                found[stack[-1]] += items[at]
            elif stack[-1] == "argument" and calls:
                calls[-1][1][argument[0]] = value(items[at], argument[1])
            else:
                whole = False
        at += 1
    return found["think"], found["response"], calls, whole and not stack


def value(text, kind):
    try:
        return text if kind == "string" else json.loads(text)
    except ValueError:
        return text
