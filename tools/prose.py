#!/usr/bin/env python3
"""Count long sentences and private words in pages, docstrings, comments and messages.

    python tools/prose.py              # fails if a page or a part of the package has more than tools/prose.txt allows
    python tools/prose.py FILE ...     # shows the sentences and words of these files
    python tools/prose.py --lower      # takes the present numbers into tools/prose.txt where they are lower

The limits only go down; what has no line there may have none. Over 30 words a sentence is long. At most 2 % may be.
A page of docs/ has at most 1500 words, and the README 900; tables of figures may have more.
"""

import ast
import io
import math
import re
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = Path(__file__).with_suffix(".txt")
MADE = ("docs/results", "docs/capabilities.md", "docs/api")  # written by programs
LONG, SHARE = 30, 0.02
WORDS, TABLES = {"README.md": 900, "docs": 1500}, ("docs/speed-tables.md",)
_ROWS = "batch|block|call|cell|column|coordinate|decoder|feature|field|fit|group|line|point|row|sample|snapshot|step"
PRIVATE = re.compile(
    rf"\b(told|says so|felt|beside|but for|a guess|at hand|in place of|honest|pays|paid for|(?:one|values?) an? "
    rf"(?:{_ROWS}))\b|, too\b",
    re.IGNORECASE,
)
ABBREVIATION = re.compile(r"(?:^|[\s(])(?:al|Alg|App|cf|e\.g|Eqs?|etc|Fig|i\.e|No|Sec|vol|vs)\.$")
INITIAL = re.compile(r"(?:^|, )\(?[A-Z]\.$")


def sentences(paragraph):
    """The words of each sentence; code is one word, and symbols such as n or |F| are none."""
    text = re.sub(r"``.+?``|`[^`]*`|\$[^$]+\$|https?://\S+", "code", paragraph)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    parts = [""]
    for piece in re.split(r"(?<=[.!?])[\")*_]*\s+", " ".join(text.split())):
        parts[-1] = f"{parts[-1]} {piece}".strip()
        if not ABBREVIATION.search(parts[-1]) and not INITIAL.search(parts[-1]):
            parts.append("")
    for part in parts:
        words = [word for word in part.split() if re.search(r"[A-Za-z]{2}|^\W*\d", word) or word == "a"]
        if words:
            yield words


def paragraphs_of_markdown(text):
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"^( *)(```|~~~)[^\n]*\n.*?^\1\2$", "\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^\$\$.*?^\$\$", "\n", text, flags=re.DOTALL | re.MULTILINE)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*>]|\d+\.) )|\n(?=[:#])", text):
        if block.lstrip().startswith("|"):
            yield from (cell for line in block.splitlines() for cell in line.split("|"))
        elif not block.lstrip().startswith((":", "    ")):
            yield re.sub(r"^\s*([-*>]|\d+\.|#+) ", "", block)


def paragraphs_of_docstring(text):
    """What is prose: no examples, headings, declarations of parameters or indented formulas."""
    block = []
    for line in [*text.expandtabs().splitlines(), ""]:
        stripped = line.strip()
        example = stripped.startswith((">>>", "...", "---", "..", "{", "|"))
        declared = re.match(r"\*{0,2}\w+(, \*{0,2}\w+)*( : |$)", stripped) and not stripped.endswith(".")
        if not stripped or example or declared:
            yield " ".join(block)
            block = []
        else:
            block.append(stripped)


def parts_of(path):
    """Paragraphs whose sentences are counted, and all text in which words are."""
    text = path.read_text()
    if path.suffix == ".md":
        found = list(paragraphs_of_markdown(text))
        return found, found
    tree, found, strings = ast.parse(text), [], []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (doc := ast.get_docstring(node)):
            found += paragraphs_of_docstring(doc)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            strings.append(node.value)  # messages, and the docstrings again
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return found, [*strings, *(token.string for token in tokens if token.type == tokenize.COMMENT)]


def read(path):
    """Long sentences, all sentences, and private words of a file."""
    paragraphs, texts = parts_of(path)
    every = [words for paragraph in paragraphs for words in sentences(paragraph)]
    private = [match[0] for text in texts for match in PRIVATE.finditer(" ".join(text.split()))]
    return [words for words in every if len(words) > LONG], every, private


def files():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("paper/*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("randsmap/**/*.py")]
    pages += [*(ROOT / "examples").rglob("*.py"), *(ROOT / "docs").glob("*.py")]
    names = (path.relative_to(ROOT).as_posix() for path in pages)
    return sorted(name for name in names if not name.startswith(MADE))


def main(arguments):
    if arguments and arguments != ["--lower"]:
        for name in arguments:
            long, every, private = read(Path(name))
            print(f"{name}: {len(long)} of {len(every)} sentences are long; {', '.join(private) or 'no private words'}")
            for words in long:
                print(f"  {len(words)}: {' '.join(words)}")
        return 0
    lines = LIMITS.read_text().splitlines() if LIMITS.exists() else []
    limits = {name: (int(long), int(private)) for name, long, private in map(str.split, lines)}
    found, total, wrong = {}, 0, []
    for name in files():
        long, every, private = read(ROOT / name)
        part = name if name.endswith(".md") else "/".join(name.split("/")[:2])
        most = math.inf if name in TABLES else WORDS.get(name.split("/")[0], math.inf)
        if name.endswith(".md") and (words := len((ROOT / name).read_text().split())) > most:
            wrong.append(f"{name}: {words} words, at most {most}")
        before = found.get(part, (0, 0))
        found[part], total = (before[0] + len(long), before[1] + len(private)), total + len(every)
    for part, counts in found.items():
        for count, limit, what in zip(counts, limits.get(part, (0, 0)), ("long sentences", "private words")):
            if count > limit:
                wrong.append(f"{part}: {count} {what}, at most {limit}")
    share = sum(long for long, _ in found.values()) / total
    if arguments:
        kept = {
            part: tuple(map(min, counts, limits.get(part, counts if not limits else (0, 0))))
            for part, counts in found.items()
        }
        text = (f"{part} {long} {private}\n" for part, (long, private) in kept.items() if long + private)
        LIMITS.write_text("".join(text))
    elif share > SHARE:
        wrong.append(f"{share:.1%} of all sentences are long, at most {SHARE:.0%}")
    print("\n".join(wrong) or f"{total} sentences, {share:.1%} longer than {LONG} words")
    return 1 if wrong and not arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
