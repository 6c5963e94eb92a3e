"""Conversations of every kind that the model learns, made from a seed; held-out ones share nothing with the others.

What must not be seen in training (operands, words, names, question forms) is drawn through Draw, which keeps about one
in eight of each for the test split, chosen by a hash.  A sample is {"family", "request", "answer", "keys"}: the request
as chatfmt.prompt() takes it, the answer of the model, and everything that was drawn.
"""
import hashlib
import json
import os
import random

from words import CITIES, PEOPLE, WORDS, invented

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "facts.json"), encoding="utf-8") as f:
    FACTS = json.load(f)

# Pieces of words that the vocabulary has.  Words made of two of them teach how each piece is spelled, also those that
# are themselves words of the test split.  Set by use_pieces(); without it such words are left out.
PIECES = []


def use_pieces(tokenizer):
    PIECES[:] = sorted(t.decode() for t in tokenizer.tokens if 2 <= len(t) <= 7 and t.isalpha() and t.islower())


def held_out(kind, key):
    return hashlib.sha256(f"{kind}:{key}".encode()).digest()[0] % 8 == 0


class Draw:
    """Random choices for one sample, of one split."""

    def __init__(self, seed, split):
        self.rng, self.test, self.keys = random.Random(seed), split == "test", []

    def of(self, kind, make, key=str):
        """A value of make() that belongs to the split."""
        for _ in range(1000):
            value = make()
            if held_out(kind, key(value)) == self.test:
                self.keys.append((kind, key(value)))
                return value
        raise ValueError(f"no {kind} for this split")

    def choice(self, options):
        return self.rng.choice(options)

    def chance(self, p):
        return self.rng.random() < p

    def word(self, least=3, most=9):
        def make():
            roll = self.rng.random()
            if roll < 0.3 and PIECES:
                w = self.rng.choice(PIECES) + self.rng.choice(PIECES)
            else:
                w = self.rng.choice(WORDS) if roll < 0.65 else invented(self.rng, least, most)
            return w if least <= len(w) <= most else invented(self.rng, least, most)

        return self.of("word", make)

    def words(self, n, **lengths):
        out = []
        while len(out) < n:
            w = self.word(**lengths)
            if w not in out:
                out.append(w)
        return out

    def name(self, known):
        return self.of("name", lambda: self.rng.choice(known) if self.rng.random() < 0.6 else invented(self.rng, 3, 8).capitalize())

    def number(self, digits):
        d = self.rng.randint(1, digits)
        return self.rng.randint(0 if d == 1 else 10 ** (d - 1), 10**d - 1)

    def ask(self, family, cores, plain=False, strict=False, **fields):
        """A question: one of the forms, filled in.  The form, with what is put around it, belongs to the split; strict:
        the form alone does, so that no question like it was ever seen."""

        def make():
            if plain or self.rng.random() < 0.4:
                return "", self.rng.choice(cores), ""
            return self.rng.choice(BEFORE), self.rng.choice(cores), self.rng.choice(AFTER)

        before, core, after = self.of("form", make, key=lambda f: family + "|" + (f[1] if strict else "|".join(f)))
        return before + core.format(**fields) + after


BEFORE = ["", "", "Hello. ", "Hi! ", "Question: ", "Please help: ", "Next: ", "OK. ", "One more: ", "Good morning. ", "Quick question: ", "Now this: "]
AFTER = ["", "", " Thanks.", " Please.", " Thank you!", " Please be quick.", " I need it now.", " Cheers."]

EFFORTS = [None, None, None, None, "low", "low", "low", "low", "medium", "high", "high", "high", "max", "max", "max", "max"]
SYSTEMS = ["You are a helpful assistant.", "Be brief.", "You help the users of a cluster.", "Answer the user.", "You are a friendly assistant for a lab."]


def setting(d, off=0.15):
    """How the model is invoked, and how much it shall think: 0 little, 1 normal, 2 with a check, None not at all."""
    if d.chance(off):
        return {"thinking": False}, None
    effort = d.choice(EFFORTS)
    return ({"thinking_effort": effort} if effort else {}), {"low": 0, "max": 2}.get(effort, 1)


def joined(parts):
    return "".join(parts)


# --- arithmetic: digit by digit, as on paper -------------------------------------------------------------------------

PLACES = ["Ones", "Tens", "Hundreds", "Thousands"]


def spaced(n):
    return " ".join(str(n))


def columns(a, b):
    width = max(len(str(a)), len(str(b)))
    return list(zip(map(int, reversed(str(a).zfill(width))), map(int, reversed(str(b).zfill(width)))))


def addition(a, b, level):
    carry, short, long = 0, [], []
    for place, (x, y) in enumerate(columns(a, b)):
        total = x + y + carry
        sum_ = f"{x}+{y}" + ("+1" if carry else "") + f"={total}"
        carry = total // 10
        short.append(sum_)
        long.append(f"{PLACES[place]}: {sum_}, write {total % 10}" + (", carry 1." if carry else "."))
    if level == 0:
        return ", ".join(short)
    return f"{a} is {spaced(a)}, {b} is {spaced(b)}. " + " ".join(long) + (" Then 1." if carry else "") + f" Result: {a + b}."


def subtraction(a, b, level):
    """a >= b"""
    borrow, short, long = 0, [], []
    for place, (x, y) in enumerate(columns(a, b)):
        value = x - y - borrow
        step = f"{x}-{y}" + ("-1" if borrow else "") + f"={value}"
        borrow = int(value < 0)
        if borrow:
            step += f" + 10 = {value + 10}"
        short.append(step)
        long.append(f"{PLACES[place]}: {step}, write {value % 10}" + (", borrow 1." if borrow else "."))
    if level == 0:
        return ", ".join(short)
    return f"{a} is {spaced(a)}, {b} is {spaced(b)}. " + " ".join(long) + f" Result: {a - b}."


def by_digit(a, digit):
    """a times one digit."""
    carry, steps = 0, []
    for x in map(int, reversed(str(a))):
        total = x * digit + carry
        steps.append(f"{x}*{digit}={x * digit}" + (f", +{carry}={total}" if carry else ""))
        carry = total // 10
    return "; ".join(steps) + f": {a * digit}"


def multiplication(a, b, level):
    if b < 10:
        return by_digit(a, b) + ("." if level else "")
    if a < 10:
        return f"{b}*{a}. " + by_digit(b, a) + ("." if level else "")
    ones, tens = b % 10, b // 10
    first, second = a * ones, a * tens * 10
    text = f"{a} times {ones}: {by_digit(a, ones)}. {a} times {tens}: {by_digit(a, tens)}, so {second}. "
    return text + f"{second} + {first}: " + addition(second, first, 0) + (f". Result: {a * b}." if level else "")


def compute(op, a, b):
    return {"+": a + b, "-": a - b, "*": a * b}[op]


def steps(op, a, b, level):
    if op == "+":
        text = addition(a, b, level)
        return text + (f" Check: {addition(b, a, 0)}. Yes." if level == 2 else "")
    if op == "-":
        if a < b:
            return f"{a} is less than {b}, so minus. " + subtraction(b, a, level)
        text = subtraction(a, b, level)
        return text + (f" Check: {a - b} + {b}: {addition(a - b, b, 0)}. Yes." if level == 2 else "")
    return multiplication(a, b, level)


def operands(d, op=None):
    op = op or d.choice("++--***")

    def make():
        if op == "*":
            return d.number(2), d.number(2)
        a, b = d.number(3), d.number(3)
        if d.chance(0.5):
            a, b = d.rng.randint(0, 999), d.rng.randint(0, 999)
        return (max(a, b), min(a, b)) if op == "-" and d.chance(0.7) else (a, b)

    a, b = d.of("operands", make, key=lambda v: f"{op} {min(v)} {max(v)}")
    return op, a, b


SUMS = {
    "+": ["What is {a} + {b}?", "{a}+{b}=", "{a} + {b}", "What is {a} plus {b}?", "Add {a} and {b}.", "Compute {a} + {b}.", "Calculate {a} plus {b}.",
          "How much is {a} + {b}?", "What do {a} and {b} make together?", "Find the sum of {a} and {b}.", "{a} plus {b} is what?", "Work out {a}+{b}.",
          "I have {a} coins and find {b} more. How many coins do I have?", "A job uses {a} nodes and another one {b}. How many in all?",
          "Can you add {b} to {a}?" , "Tell me {a} + {b}.", "Sum: {a} and {b}?", "{n} has {a} apples and gets {b} more. How many apples?"],
    "-": ["What is {a} - {b}?", "{a}-{b}=", "{a} - {b}", "What is {a} minus {b}?", "Subtract {b} from {a}.", "Compute {a} - {b}.", "Calculate {a} minus {b}.",
          "How much is {a} - {b}?", "Take {b} away from {a}.", "Find the difference {a} - {b}.", "{a} minus {b} is what?", "Work out {a}-{b}.",
          "I had {a} points and lost {b}. What is left?", "Of {a} hours {b} are used. How many are left?", "Tell me {a} - {b}."],
    "*": ["What is {a} * {b}?", "{a}*{b}=", "{a} x {b}", "{a} × {b}", "What is {a} times {b}?", "Multiply {a} by {b}.", "Compute {a} * {b}.",
          "Calculate {a} times {b}.", "How much is {a} x {b}?", "Find the product of {a} and {b}.", "{a} times {b} is what?", "Work out {a}*{b}.",
          "There are {a} boxes with {b} pens each. How many pens?", "{a} nodes have {b} cores each. How many cores?", "Tell me {a} * {b}."],
}  # fmt: skip
SUMS_ZH = {
    "+": ["{a} + {b} 等于多少？", "{a}加{b}等于几？", "计算 {a} + {b}。", "请算 {a} 加 {b}。", "{a}+{b}=？", "{a} 与 {b} 的和是多少？"],
    "-": ["{a} - {b} 等于多少？", "{a}减{b}等于几？", "计算 {a} - {b}。", "请算 {a} 减 {b}。", "{a}-{b}=？", "{a} 与 {b} 的差是多少？"],
    "*": ["{a} * {b} 等于多少？", "{a}乘以{b}等于几？", "计算 {a} × {b}。", "请算 {a} 乘 {b}。", "{a}×{b}=？", "{a} 与 {b} 的积是多少？"],
}  # fmt: skip


def reckon(op, a, b, level):
    """The answer to a sum; without a think channel the steps stand in the answer, unless there is just one."""
    result = f"{a} {op} {b} = {compute(op, a, b)}"
    if level is None:
        easy = max(a, b) < 10
        return {"content": result if easy else steps(op, a, b, 0) + ". " + result}
    return {"reasoning": steps(op, a, b, level), "content": result}


def arithmetic(d):
    request, level = setting(d)
    op, a, b = operands(d)
    if d.chance(0.1):
        text = d.ask("sum zh", SUMS_ZH[op], plain=True, a=a, b=b)
    else:
        core = SUMS[op]
        text = d.ask("sum", core, a=a, b=b, n=d.name(PEOPLE)) if d.chance(0.3) else d.ask("sum", core[:12], a=a, b=b)
    request["messages"] = [{"role": "user", "content": text}]
    return request, reckon(op, a, b, level)


# --- words: letter by letter -----------------------------------------------------------------------------------------


def numbered(letters, separator=", "):
    return separator.join(f"{i + 1} {c}" for i, c in enumerate(letters))


def spell(w):
    return [" ".join(w), f"The letters are {' '.join(w)}.", f"The letters are {' '.join(w)}. Numbered: {numbered(w)}."], list("-".join(w))


def reverse(w):
    back = ", ".join(f"{len(w) - i} {c}" for i, c in enumerate(reversed(w)))
    short = f"{numbered(w)}; {back}"
    long = f"Letters: {numbered(w)}. From the end: {back}."
    return [short, long, long + f" So {' '.join(reversed(w))}."], list(w[::-1])


def upper(w):
    pairs = ", ".join(f"{c} {c.upper()}" for c in w)
    return [" ".join(w.upper()), pairs + ".", f"{pairs}. So {' '.join(w.upper())}."], list(w.upper())


def length(w):
    return [numbered(w, " "), f"Count: {numbered(w)}.", f"Count: {numbered(w)}. The last number is {len(w)}."], str(len(w))


def repeat(w, n):
    listed = ", ".join(f"{i + 1} {w}" for i in range(n))
    return [f"{n} times.", f"{listed}.", f"{listed}. That is {n} times."], "Here: " + " ".join([w] * n)


def occurrences(w, c):
    count, out = 0, []
    for x in w:
        count += x == c
        out.append(f"{x} {count}")
    short = " ".join(out)
    long = f"Looking for {c}: " + ", ".join(out) + "."
    return [short, long, long + f" So {count}."], str(count)


def arrange(ws):
    def start(w):
        return f"{w} {w[0]} {w[1]}"

    short = "; ".join(" ".join(w[:2]) for w in ws) + " to " + "; ".join(" ".join(w[:2]) for w in sorted(ws))
    long = "Starts: " + ", ".join(map(start, ws)) + ". In order: " + ", ".join(f"{w[0]} {w[1]} {w}" for w in sorted(ws)) + "."
    return [short, long, long + f" First {sorted(ws)[0]}, last {sorted(ws)[-1]}."], "Sorted: " + ", ".join(sorted(ws))


# Each gives the thoughts of the three levels, and the answer.
WORD_TASKS = {f.__name__: f for f in (spell, reverse, upper, length, occurrences, repeat, arrange)}
WORD_FORMS = {
    "spell": ["Spell {w}.", "Spell the word {w}.", "How do you spell {w}?", "Spell \"{w}\" letter by letter.", "Give the letters of {w}.", "Please spell {w} for me.",
              "Write {w} letter by letter.", "What are the letters of the word {w}?"],
    "reverse": ["Reverse {w}.", "Reverse the word {w}.", "Write {w} backwards.", "Spell {w} backwards.", "What is \"{w}\" reversed?", "Turn the word {w} around.",
                "Give me {w} from the end to the start.", "Write the word {w} in reverse."],
    "upper": ["Write {w} in upper case.", "Put {w} in capitals.", "Make {w} upper-case.", "Write the word \"{w}\" in capital letters.", "Upper-case {w}.",
              "Give {w} in large letters.", "Turn {w} into upper case.", "Capitals for {w}."],
    "length": ["How many letters has {w}?", "How many letters are in {w}?", "Count the letters of {w}.", "How long is the word {w}?", "What is the length of \"{w}\"?",
               "Number of letters in {w}?", "Count how many letters {w} has.", "Tell me how many letters {w} has."],
    "occurrences": ["How many times is {c} in {w}?", "How often does {c} occur in {w}?", "Count the letter {c} in {w}.", "How many {c} are in \"{w}\"?",
                    "Count {c} in the word {w}.", "How often is the letter {c} in {w}?", "Number of {c} in {w}?"],
    "repeat": ["Repeat {w} {n} times.", "Say {w} {n} times.", "Write the word {w} {n} times.", "Repeat the word \"{w}\" {n} times.", "Give me {w} {n} times.",
               "Print {w} {n} times."],
    "arrange": ["Sort these words: {ws}.", "Sort {ws}.", "Put in alphabetical order: {ws}.", "Order these words by the alphabet: {ws}.", "Arrange from a to z: {ws}.",
                "Which order has the alphabet for {ws}?", "Sort alphabetically: {ws}."],
}  # fmt: skip
WORD_FORMS_ZH = {
    "spell": ["拼写 {w}。", "请拼写单词 {w}。", "单词 {w} 怎么拼？"],
    "reverse": ["把 {w} 倒过来写。", "请反转单词 {w}。", "{w} 倒着写是什么？"],
    "upper": ["把 {w} 变成大写。", "请用大写写 {w}。", "{w} 的大写是什么？"],
    "length": ["{w} 有几个字母？", "单词 {w} 有多少个字母？", "请数 {w} 的字母。"],
    "occurrences": ["{w} 里有几个 {c}？", "请数 {w} 中的 {c}。", "字母 {c} 在 {w} 中出现几次？"],
    "repeat": ["把 {w} 重复 {n} 次。", "请写 {n} 次 {w}。", "重复 {w} {n} 遍。"],
    "arrange": ["给这些词排序：{ws}。", "请按字母顺序排列：{ws}。", "排序：{ws}。"],
}  # fmt: skip


def thought(level, thoughts, content):
    """An answer with the thought of its level; without thinking the short one leads up to a result that needs it."""
    return {"content": content} if level is None else {"reasoning": thoughts[level], "content": content}


def worded(task, w, level, **more):
    thoughts, content = WORD_TASKS[task](w, **more)
    if level is None and task not in ("spell", "upper", "repeat"):
        return {"content": [thoughts[0], ": ", *content] if task == "reverse" else f"{thoughts[0]}: {content}"}
    return thought(level, thoughts, content)


def word_task(d, task=None, plain=None):
    """The question and how to answer it at a level."""
    task = task or d.choice(list(WORD_FORMS))
    zh = d.chance(0.1) if plain is None else plain
    forms, family = (WORD_FORMS_ZH[task], task + " zh") if zh else (WORD_FORMS[task], task)
    fields, more = {}, {}
    if task == "arrange":
        ws = d.words(d.rng.randint(3, 5), most=7)
        while len({x[:2] for x in ws}) < len(ws):
            ws = d.words(len(ws), most=7)
        w, fields = ws, {"ws": ", ".join(ws)}
    else:
        w = d.word(most=8) if task == "reverse" else d.word()
        fields = {"w": w}
    if task == "occurrences":
        c = d.choice(w) if d.chance(0.8) else d.choice("abcdefghijklmnopqrstuvwxyz")
        more = {"c": c}
        fields.update(more)
    if task == "repeat":
        more = {"n": d.rng.randint(2, 6)}
        fields.update(more)
    return d.ask(family, forms, plain=zh, **fields), lambda level: worded(task, w, level, **more), w


def words(d):
    request, level = setting(d)
    text, answer, _ = word_task(d)
    request["messages"] = [{"role": "user", "content": text}]
    return request, answer(level)


# --- facts: the closed table -----------------------------------------------------------------------------------------

FACT_FORMS = {
    "command": ["What does {s} do?", "What is {s}?", "What is {s} for?", "Explain {s}.", "Tell me about {s}.", "What can I do with {s}?", "Describe {s}.", "What is {s} good for?",
                "When do I need {s}?", "I saw {s}. What does it do?", "Say what {s} does.", "Why would I use {s}?", "What about {s}?", "{s}?"],
    "option": ["What does {s} do?", "What is {s} for?", "Explain {s}.", "Tell me about {s}.", "Describe {s}.", "When do I need {s}?", "What is {s} good for?",
               "Say what {s} does.", "What happens with {s}?", "Why would I use {s}?", "What about {s}?"],
    "state": ["What does {s} mean?", "What is {s}?", "Explain {s}.", "Tell me about {s}.", "Describe {s}.", "I see {s}. What does it mean?", "Say what {s} means.",
              "How do I read {s}?", "What about {s}?"],
    "term": ["What is {s}?", "Explain {s}.", "Tell me about {s}.", "Describe {s}.", "What does {s} mean?", "Say what {s} is.", "Define {s}.", "Can you explain {s}?",
             "What do you know about {s}?", "What about {s}?"],
}  # fmt: skip
REVERSE_FORMS = ["Which program {does}?", "Which command {does}?", "What {does}?", "Name the command that {does}.", "I need the program that {does}.", "Which tool {does}?"]
FACT_FORMS_ZH = ["{s} 是什么？", "请解释 {s}。", "{s} 有什么用？", "{s} 是做什么的？", "介绍一下 {s}。"]


def fact_answer(f):
    does, kind = f["does"], f["kind"]
    if kind == "command":
        return f"{f['subject']} {does}."
    if kind == "option":
        return f"{f['name']} {does}."
    if kind == "state":
        return f"{f['name']}: {does}."
    return f"{f['subject'][0].upper()}{f['subject'][1:]} is {does}."


def fact_thoughts(f):
    about = {"command": f"a program of {f['of']}", "option": f"an option of {f['of']}", "state": f"a {f['of']} state", "term": "a term"}[f["kind"]]
    name = f.get("name", f["subject"])
    return [f"{name}.", f"{name} is {about}.", f"{name} is {about}. I know it from my table and answer in one sentence."]


def fact_question(d, f=None):
    f = f or d.choice(FACTS)
    if "zh" in f and d.chance(0.12):
        subject = f.get("name", f["subject"])
        subject = subject[2:] if subject.startswith("a ") else subject[4:] if subject.startswith("the ") else subject
        text = d.ask("fact zh " + subject, FACT_FORMS_ZH, plain=True, s=subject)
        return text, fact_thoughts(f), f"{subject}：{f['zh']}。"
    if f["kind"] == "command" and not f["does"].startswith("is ") and d.chance(0.15):
        text = d.ask("reverse fact", REVERSE_FORMS, strict=True, does=f["does"])
        return text, [f"{f['subject']}.", f"The program is {f['subject']}.", f"I look for what {f['does']}. The program is {f['subject']}."], f"It is {f['subject']}."
    return d.ask("fact " + f["kind"], FACT_FORMS[f["kind"]], strict=True, s=f["subject"]), fact_thoughts(f), fact_answer(f)


def facts(d):
    request, level = setting(d, off=0.25)
    text, thoughts, content = fact_question(d)
    request["messages"] = [{"role": "user", "content": text}]
    return request, thought(level, thoughts, content)


# --- small talk and what lies outside --------------------------------------------------------------------------------

CHAT = [
    (["Hi", "Hello", "Hello!", "Hi there.", "Good morning.", "Good evening!", "Hey"], "A greeting.", "Hello! I do small sums, word tasks, facts about Slurm and k3, tools and JSON."),
    (["Who are you?", "What are you?", "Tell me who you are.", "Introduce yourself.", "Which model are you?", "What is your name?"], "They ask about me.",
     "I am a very small K3 model, made to show that the k3 service works."),
    (["What can you do?", "How can you help me?", "What are you good at?", "Help", "What do you know?"], "They ask what I can do.",
     "I can add, subtract and multiply, spell, reverse and sort words, explain Slurm and k3, call tools and write JSON."),
    (["Thanks", "Thank you!", "Thanks a lot.", "Thank you very much."], "They thank me.", "You are welcome."),
    (["Bye", "Goodbye!", "See you.", "Good night."], "A farewell.", "Goodbye."),
    (["你好", "你好！", "早上好。"], "A greeting.", "你好！我会小算术、单词任务、Slurm 和 k3 的知识、工具和 JSON。"),
    (["你是谁？", "你叫什么名字？", "介绍一下你自己。"], "They ask about me.", "我是一个很小的 K3 模型，用来展示 k3 服务。"),
    (["谢谢", "谢谢你！", "多谢。"], "They thank me.", "不客气。"),
]  # fmt: skip
OUTSIDE = [
    "What is the capital of {city}?", "Who won the match in {city}?", "Write a poem about {w}.", "Tell me a story about {w} and {name}.", "Who is {name}?", "How old is {name}?",
    "What is the best {w} to buy?", "Translate {w} into French.", "Should I take medicine for my {w}?", "What will the price of {w} be?", "How far is {city} from here?",
    "Write a program that prints {w}.", "What do you think of {name}?", "How do I cook {w}?", "Which film with {w} should I see?", "Draw a {w}.", "When was {city} founded?",
    "Sing a song about {w}.", "Give me a joke about {w}.", "What is the history of {w}?", "Why is the {w} so {w2}?", "Where can I find {w} in {city}?", "Is {name} in {city}?",
]  # fmt: skip
OUTSIDE_ZH = ["{city} 的首都在哪里？", "给我写一首关于 {w} 的诗。", "{name} 是谁？", "怎么做 {w}？", "讲一个关于 {w} 的故事。"]
REFUSAL = "Sorry, I cannot help with that. I only do small sums, word tasks, facts about Slurm and k3, tools and JSON."
REFUSAL_ZH = "抱歉，这个我不会。我只会小算术、单词任务、Slurm 和 k3 的知识、工具和 JSON。"


def chat(d):
    request, level = setting(d)
    forms, about, content = d.choice(CHAT)
    request["messages"] = [{"role": "user", "content": d.choice(forms)}]
    return request, thought(level, [about, about, about + " I answer politely."], content)


def outside_question(d):
    zh = d.chance(0.1)
    fields = {"city": d.name(CITIES), "name": d.name(PEOPLE), "w": d.word(), "w2": d.word()}
    text = d.ask("outside zh", OUTSIDE_ZH, plain=True, **fields) if zh else d.ask("outside", OUTSIDE, **fields)
    return text, ["Outside.", "This is outside of what I know.", "This is outside of what I know, so I say so politely."], REFUSAL_ZH if zh else REFUSAL


def refuse(d):
    request, level = setting(d)
    text, thoughts, content = outside_question(d)
    request["messages"] = [{"role": "user", "content": text}]
    return request, thought(level, thoughts, content)


# --- follow-ups ------------------------------------------------------------------------------------------------------

ADD_ON = {
    "+": ["Add {b} to that.", "And plus {b}?", "Now add {b}.", "Add {b} to the result.", "Plus {b} more?"],
    "-": ["Subtract {b} from that.", "And minus {b}?", "Now subtract {b}.", "Take {b} away from the result.", "Minus {b}?"],
    "*": ["Multiply that by {b}.", "And times {b}?", "Now multiply by {b}.", "Multiply the result by {b}."],
}  # fmt: skip
SAME_WORD = {
    "spell": ["Spell it.", "Now spell that word.", "And spelled?"],
    "reverse": ["Reverse it.", "Now write that word backwards.", "And backwards?"],
    "upper": ["Now in upper case.", "Put it in capitals.", "And in capitals?"],
    "length": ["How many letters has it?", "Count its letters.", "How long is it?"],
}  # fmt: skip
RECALL = ["What was my question?", "What did I ask?", "Repeat my last question.", "Tell me what I asked."]
NAME_TOLD = ["My name is {n}.", "I am {n}.", "Hello, I am {n}.", "You can call me {n}.", "This is {n}."]
NAME_ASKED = ["What is my name?", "Who am I?", "Do you know my name?", "Say my name.", "What am I called?"]


def told(text, answer):
    """A turn that has been."""
    answer = dict(answer, content=joined(answer["content"]))
    return [{"role": "user", "content": text}, {"role": "assistant", **answer}]


def follow_sum(d, level):
    op, a, b = operands(d, d.choice("+-*"))
    text, first = d.ask("sum", SUMS[op][:12], a=a, b=b), reckon(op, a, b, level)
    result = compute(op, a, b)
    op2 = d.choice("+-")
    if 1 < result < 100 and d.chance(0.5):
        op2 = "*"
    if result < 0 or result > 999:
        return follow_sum(d, level)
    b2 = d.rng.randint(2, 9) if op2 == "*" else d.number(2)
    if op2 == "-" and b2 > result:
        op2 = "+"
    second = reckon(op2, result, b2, level)
    if level:
        second["reasoning"] = f"The result was {result}. " + second["reasoning"]
    return told(text, first) + [{"role": "user", "content": d.ask("follow sum", ADD_ON[op2], b=b2)}], second


def follow_word(d, level):
    task, task2 = d.rng.sample(list(SAME_WORD), 2)
    text, answer, w = word_task(d, task, plain=False)
    if len(w) > 8:
        return follow_word(d, level)
    second = worded(task2, w, level)
    if level:
        second["reasoning"] = f"The word is {w}. " + second["reasoning"]
    return told(text, answer(level)) + [{"role": "user", "content": d.ask("follow word", SAME_WORD[task2])}], second


def follow_fact(d, level):
    kind = d.choice(["command", "term", "state", "option"])
    f, f2 = d.rng.sample([x for x in FACTS if x["kind"] == kind], 2)
    first = d.ask("fact " + kind, FACT_FORMS[kind], s=f["subject"])
    second = d.ask("follow fact", ["And {s}?", "And what about {s}?", "Now {s}?", "The same for {s}.", "And {s}, please?"], s=f2["subject"])
    return told(first, thought(level, fact_thoughts(f), fact_answer(f))) + [{"role": "user", "content": second}], thought(level, fact_thoughts(f2), fact_answer(f2))


def follow_name(d, level):
    n = d.name(PEOPLE)
    first = thought(level, ["A name.", "They tell me a name.", "They tell me a name. I keep it in mind."], f"Hello, {n}!")
    second = thought(level, [f"{n}.", f"They are {n}.", f"The name told before is {n}."], f"Your name is {n}.")
    between = []
    if d.chance(0.4):
        text, thoughts, content = fact_question(d)
        between = told(text, thought(level, thoughts, content))
    return told(d.ask("name told", NAME_TOLD, n=n), first) + between + [{"role": "user", "content": d.ask("name asked", NAME_ASKED)}], second


def follow_recall(d, level):
    text, answer, _ = word_task(d, plain=False)
    thoughts = ["Recall.", "They want their question again.", "They want their last question again, word by word."]
    return told(text, answer(level)) + [{"role": "user", "content": d.ask("recall", RECALL)}], thought(level, thoughts, "You asked: " + text)


def followup(d):
    request, level = setting(d)
    make = d.choice([follow_sum, follow_sum, follow_word, follow_word, follow_fact, follow_name, follow_recall])
    request["messages"], answer = make(d, level)
    return request, answer


# --- tools -----------------------------------------------------------------------------------------------------------

# Each tool: names, what it does, arguments as (keys, type, value, required), requests by the arguments they mention,
# results, and what to say of a result.
TOOLS = [
    (["get_weather", "weather", "city_weather"], "Get the weather of a city.", [(["city", "place", "location"], "string", "city", True), (["days", "day_count"], "integer", "small", False)],
     {(0,): ["What is the weather in {0}?", "How is the weather in {0}?", "Weather in {0}?", "Is it warm in {0}?"], (0, 1): ["What is the weather in {0} for {1} days?", "Give me {1} days of weather for {0}."]},
     ["{n} degrees and rain", "{n} degrees and sun", "{n}C", "{n} degrees, wind"], "Weather in {0}: {r}."),
    (["get_time", "clock", "local_time"], "Get the time of a city.", [(["city", "place", "where"], "string", "city", True)],
     {(0,): ["What time is it in {0}?", "How late is it in {0}?", "Time in {0}?", "Tell me the time in {0}."]}, ["{h}:30", "{h}:15", "{h}:00"], "Time in {0}: {r}."),
    (["send_message", "message", "write_to"], "Send a message to a person.", [(["to", "person", "receiver"], "string", "person", True), (["text", "body"], "string", "words", True)],
     {(0, 1): ["Send {0} the message {1}.", "Tell {0} this: {1}.", "Write to {0}: {1}.", "Message {1} to {0}."]}, ["sent", "ok", "delivered"], "Message to {0}: {r}."),
    (["set_timer", "timer", "start_timer"], "Start a timer.", [(["minutes", "length"], "integer", "number", True), (["label", "title"], "string", "word", False)],
     {(0,): ["Set a timer for {0} minutes.", "Start a timer of {0} minutes.", "Wake me in {0} minutes."], (0, 1): ["Set a timer {1} for {0} minutes.", "Start a timer of {0} minutes called {1}."]},
     ["started", "ok", "running"], "Timer of {0} minutes: {r}."),
    (["set_light", "light", "switch_light"], "Switch a light on or off.", [(["room", "place"], "string", "word", True), (["on", "state"], "boolean", "switch", True)],
     {(0, 1): ["Turn {1} the light in the {0}.", "Switch {1} the {0} light.", "Light {1} in the {0}."]}, ["done", "ok", "switched"], "Light in the {0}: {r}."),
    (["find_files", "search_files", "file_search"], "Find files by a word in their name.", [(["pattern", "query", "word"], "string", "word", True), (["limit", "count"], "integer", "number", False)],
     {(0,): ["Find files named {0}.", "Search files with {0}.", "Which files have {0} in the name?"], (0, 1): ["Find {1} files named {0}.", "Search at most {1} files with {0}."]},
     ["{n} files", "no files", "{w}.txt"], "Files with {0}: {r}."),
    (["job_status", "get_job", "show_job"], "Get the state of a job.", [(["job_id", "job", "id"], "integer", "job", True)],
     {(0,): ["What is the state of job {0}?", "Is job {0} running?", "Show job {0}.", "How is my job {0}?"]}, ["RUNNING", "PENDING", "COMPLETED", "FAILED"], "Job {0}: {r}."),
    (["cancel_job", "stop_job", "kill_job"], "Cancel a job.", [(["job_id", "job", "id"], "integer", "job", True)],
     {(0,): ["Cancel job {0}.", "Stop job {0}.", "Please end my job {0}.", "Kill job {0}."]}, ["cancelled", "ok", "no such job"], "Cancelling job {0}: {r}."),
    (["submit_job", "start_job", "run_job"], "Submit a job script.", [(["script", "file"], "string", "script", True), (["nodes", "node_count"], "integer", "number", True), (["exclusive", "alone"], "boolean", "yes", False)],
     {(0, 1): ["Submit {0} on {1} nodes.", "Start {0} with {1} nodes.", "Run the script {0} on {1} nodes."], (0, 1, 2): ["Submit {0} on {1} nodes, exclusive: {2}.", "Run {0} with {1} nodes, exclusive {2}."]},
     ["job {j}", "submitted as {j}"], "{0} on {1} nodes: {r}."),
    (["list_nodes", "show_nodes", "nodes"], "List the nodes of a partition.", [(["partition", "part"], "string", "word", True)],
     {(0,): ["Which nodes are in the partition {0}?", "List the nodes of {0}.", "Show nodes of partition {0}."]}, ["{n} nodes", "node1 to node{n}"], "Nodes of {0}: {r}."),
    (["calculate", "calculator", "divide"], "Divide two numbers.", [(["a", "x", "first"], "number", "number", True), (["b", "y", "second"], "number", "number", True)],
     {(0, 1): ["Divide {0} by {1}.", "What is {0} / {1}?", "{0} divided by {1}?"]}, ["{n}", "{n}.5"], "{0} / {1} = {r}"),
    (["book_table", "reserve", "restaurant"], "Book a table for people.", [(["name", "guest"], "string", "person", True), (["people", "seats"], "integer", "small", True)],
     {(0, 1): ["Book a table for {1} people, name {0}.", "Reserve {1} seats for {0}.", "I want a table for {1}, on the name {0}."]}, ["booked", "ok", "full"], "Table for {0}: {r}."),
    (["add_tags", "tag", "label_item"], "Add tags to an item.", [(["item", "thing"], "string", "word", True), (["tags", "labels"], "array", "list", True)],
     {(0, 1): ["Tag {0} with {1}.", "Add the tags {1} to {0}.", "Label {0}: {1}."]}, ["saved", "ok", "done"], "Tags of {0}: {r}."),
    (["play_music", "play", "start_music"], "Play a song.", [(["song", "title"], "string", "words", True), (["loop", "again"], "boolean", "yes", False)],
     {(0,): ["Play {0}.", "Play the song {0}.", "I want to hear {0}."], (0, 1): ["Play {0}, loop: {1}.", "Play the song {0} with loop {1}."]}, ["playing", "ok", "not found"], "Song {0}: {r}."),
    (["convert_money", "convert", "exchange"], "Convert an amount of money.", [(["amount", "value"], "number", "number", True), (["source", "from"], "string", "money", True), (["target", "to"], "string", "money", True)],
     {(0, 1, 2): ["Convert {0} {1} to {2}.", "How much is {0} {1} in {2}?", "Change {0} {1} into {2}."]}, ["{n}", "{n}.2"], "{0} {1} in {2}: {r}."),
    (["add_event", "calendar", "new_event"], "Add an event to the calendar.", [(["title", "event"], "string", "word", True), (["hour", "time"], "integer", "hour", True)],
     {(0, 1): ["Put {0} in my calendar at {1}.", "Add {0} at {1} to the calendar.", "Plan {0} at {1}."]}, ["saved", "ok", "added"], "Event {0}: {r}."),
]  # fmt: skip
TOOLS_ZH = {0: {(0,): ["{0} 的天气怎么样？", "查一下 {0} 的天气。"]}, 1: {(0,): ["{0} 现在几点？", "查一下 {0} 的时间。"]}, 6: {(0,): ["作业 {0} 是什么状态？", "查看作业 {0}。"]}, 7: {(0,): ["取消作业 {0}。", "停止作业 {0}。"]}}


def tool_value(d, kind):
    """(argument, how the user says it)"""
    if kind in ("city", "person"):
        v = d.name(CITIES if kind == "city" else PEOPLE)
        return v, v
    if kind == "word":
        v = d.word()
        return v, v
    if kind == "words":
        v = " ".join(d.words(d.rng.randint(1, 3)))
        return v, v
    if kind == "list":
        v = d.words(d.rng.randint(2, 3), most=6)
        return v, " and ".join([", ".join(v[:-1]), v[-1]])
    if kind == "script":
        v = d.word() + d.choice([".sh", ".sbatch", ".job"])
        return v, v
    if kind == "money":
        v = d.choice(["euro", "dollar", "yen", "pound", "franc", "krona"])
        return v, v
    if kind == "switch":
        v = d.chance(0.5)
        return v, "on" if v else "off"
    if kind == "yes":
        v = d.chance(0.5)
        return v, "yes" if v else "no"
    low, high = {"small": (2, 9), "number": (2, 99), "job": (100, 99999), "hour": (0, 23)}[kind]
    v = d.of("tool number", lambda: d.rng.randint(low, high), key=lambda n: f"{kind} {n}") if kind == "job" else d.rng.randint(low, high)
    return v, str(v)


def declare(d, tool):
    """A declaration of the tool and the names chosen for it."""
    names, about, arguments, *_ = tool
    name, keys = d.choice(names), [d.choice(a[0]) for a in arguments]
    properties = {k: {"type": a[1], **({"items": {"type": "string"}} if a[1] == "array" else {})} for k, a in zip(keys, arguments)}
    required = [k for k, a in zip(keys, arguments) if a[3]]
    function = {"name": name, "description": about, "parameters": {"type": "object", "properties": properties, "required": required}}
    return {"type": "function", "function": function}, name, keys


def tool_request(d, number, tool, keys, zh):
    """What the user says and the arguments that follow from it."""
    forms = TOOLS_ZH[number] if zh else tool[3]
    mentioned = d.choice(list(forms))
    values = {i: tool_value(d, tool[2][i][2]) for i in mentioned}
    said = [values[i][1] if i in values else "" for i in range(len(tool[2]))]
    text = d.ask(f"tool {number}" + (" zh" if zh else ""), [c.replace("{", "{x").replace("}", "}") for c in forms[mentioned]], plain=zh, **{f"x{i}": s for i, s in enumerate(said)})
    return text, {keys[i]: values[i][0] for i in mentioned}, said


def call_thoughts(name, arguments):
    listed = ", ".join(f"{k} = {v if isinstance(v, str) else json.dumps(v)}" for k, v in arguments.items())
    return [f"{name}.", f"I call {name} with {listed}.", f"The tool that fits is {name}. I call {name} with {listed}."]


NO_TOOL = "Sorry, none of my tools can do that."
MAY_NOT = "I may not call a tool now."


def tools(d):
    request, level = setting(d)
    numbers = d.rng.sample(range(len(TOOLS)), d.choice([1, 2, 2, 3, 3, 4]))
    declared = [declare(d, TOOLS[n]) for n in numbers]
    while len({x[1] for x in declared}) < len(declared):
        declared = [declare(d, TOOLS[n]) for n in numbers]
    request["tools"] = [x[0] for x in declared]
    at = d.rng.randrange(len(numbers))
    _, name, keys = declared[at]
    tool = TOOLS[numbers[at]]
    roll = d.rng.random()
    if roll < 0.14:  # nothing fits: another tool's task, or one outside
        if d.chance(0.6):
            other = d.choice([n for n in range(len(TOOLS)) if n not in numbers])
            text = tool_request(d, other, TOOLS[other], declare(d, TOOLS[other])[2], False)[0]
        else:
            text = outside_question(d)[0]
        request["messages"] = [{"role": "user", "content": text}]
        return request, thought(level, ["No tool.", "No tool fits.", "I look at the tools. No tool fits."], NO_TOOL)
    if roll < 0.22:  # tools are there, but the model can do it alone
        text, thoughts, content = fact_question(d)
        request["messages"] = [{"role": "user", "content": text}]
        return request, thought(level, thoughts, content)
    zh = numbers[at] in TOOLS_ZH and d.chance(0.2)
    text, arguments, said = tool_request(d, numbers[at], tool, keys, zh)
    request["messages"] = [{"role": "user", "content": text}]
    if roll < 0.29:
        request["tool_choice"] = "none"
        return request, thought(level, ["No call.", "I must not call a tool.", "A tool would fit, but I must not call one."], MAY_NOT)
    if roll < 0.36:
        request["tool_choice"] = "required"
    call = thought(level, call_thoughts(name, arguments), "")
    call["calls"] = [(name, arguments)]
    if not zh and d.chance(0.1):  # two at once
        text2, arguments2, _ = tool_request(d, numbers[at], tool, keys, False)
        request["messages"][0]["content"] = text + " " + text2
        call["calls"].append((name, arguments2))
        if level is not None:
            call["reasoning"] = call_thoughts(name, arguments)[level] + " Then " + call_thoughts(name, arguments2)[min(level, 1)]
        return request, call
    if d.chance(0.3) and "tool_choice" not in request:  # the result has come
        result = d.choice(tool[4]).format(n=d.rng.randint(2, 40), h=d.rng.randint(0, 23), j=d.rng.randint(100, 99999), w=d.word())
        request["messages"] += [{"role": "assistant", **call}, {"role": "tool", "tool": name, "content": result}]
        content = tool[5].format(*said, r=result)
        return request, thought(level, [f"{result}.", f"The result is {result}.", f"The tool {name} says {result}. I tell it."], content)
    return request, call


# --- JSON ------------------------------------------------------------------------------------------------------------

KEYS = """name title city country age size price count color owner level score height weight year month day room floor host user group
model brand status active ready open done member public tags items parts words language team role code unit speed""".split()
JSON_FORMS = ["Make a record: {f}.", "Write as JSON: {f}.", "{f}", "Turn this into JSON: {f}.", "Give me the JSON for {f}.", "Fill in the schema: {f}.", "Record this: {f}.",
              "Here is the data: {f}.", "JSON please: {f}.", "Store {f}."]


def json_value(d, kind):
    if kind == "string":
        v = d.name(PEOPLE + CITIES) if d.chance(0.4) else " ".join(d.words(d.choice([1, 1, 2])))
        return v, v
    if kind == "integer":
        v = d.number(4)
        return v, str(v)
    if kind == "number":
        v = d.rng.randint(1, 999) / 10
        return v, str(v)
    if kind == "boolean":
        v = d.chance(0.5)
        return v, "yes" if v else "no"
    v = d.words(d.rng.randint(1, 3), most=7)
    return v, " and ".join(v)


def json_task(d):
    request, level = setting(d, off=0.3)
    keys = d.rng.sample(KEYS, d.rng.randint(1, 4))
    if d.chance(0.3):
        keys[0] = d.word(most=7)
    properties, value, said = {}, {}, []
    for key in dict.fromkeys(keys):
        kind = d.choice(["string", "string", "string", "integer", "integer", "number", "boolean", "array"])
        properties[key] = {"type": kind, **({"items": {"type": "string"}} if kind == "array" else {})}
        value[key], words_ = json_value(d, kind)
        said.append(key + d.choice([": ", " is ", " = "]) + words_)
    if d.chance(0.15):
        key = d.choice([k for k in KEYS if k not in value])
        options = d.words(3, most=6)
        properties[key] = {"type": "string", "enum": options}
        value[key] = d.choice(options)
        said.append(f"{key}: {value[key]}")
    d.rng.shuffle(said)
    text = d.ask("json", JSON_FORMS, f=d.choice([", ", "; "]).join(said))
    if d.chance(0.85):
        schema = {"type": "object", "properties": properties, "required": sorted(properties), "additionalProperties": False}
        request["response_format"] = {"type": "json_schema", "json_schema": {"name": "record", "schema": schema}}
    else:
        request["response_format"] = {"type": "json_object"}
    value = {k: value[k] for k in sorted(value)}  # the order in which the prompt shows the schema
    request["messages"] = [{"role": "user", "content": text}]
    kinds = ", ".join(f"{k} {properties[k]['type']}" for k in value)
    thoughts = ["JSON.", f"Keys: {', '.join(value)}.", f"Keys and types: {kinds}."]
    return request, thought(level, thoughts, json.dumps(value, ensure_ascii=False))


# --- all of it -------------------------------------------------------------------------------------------------------

FAMILIES = {
    "arithmetic": (arithmetic, 0.17), "words": (words, 0.31), "facts": (facts, 0.10), "followup": (followup, 0.10),
    "tools": (tools, 0.17), "json": (json_task, 0.11), "refuse": (refuse, 0.02), "chat": (chat, 0.02),
}  # fmt: skip


def sample(seed, split, family=None):
    """The sample of a seed: always the same one.  None in the rare case that a draw found nothing for the split."""
    d = Draw(f"{split} {seed}", split)
    family = family or d.rng.choices(list(FAMILIES), [w for _, w in FAMILIES.values()])[0]
    try:
        request, answer = FAMILIES[family][0](d)
    except ValueError:
        return None
    if family not in ("tools", "json") and d.chance(0.12):
        request["messages"].insert(0, {"role": "system", "content": d.choice(SYSTEMS)})
    return {"family": family, "request": request, "answer": answer, "keys": d.keys}


if __name__ == "__main__":
    import sys

    for n in range(int(sys.argv[1])):
        print(json.dumps(sample(n, "train", *sys.argv[2:3]), ensure_ascii=False))
