"""What can be said of the Lean sources without running Lean: no way around the kernel, all imported, all documented.

Run as a script it prints what is wrong, as `file:line: reason`, and exits 1 if anything is.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.lean.flatten import FlattenError, Module, load, order

FOLDERS = ("spec", "proofs")
ROOTS = ("AttnSpec", "AttnProofs")

# Each of these either assumes what should be proved, trusts compiled code, or runs code while checking.
FORBIDDEN = {
    r"sorry|sorryAx|admit": "leaves a proof open",
    r"axiom|constant|opaque": "assumes what should be proved",
    r"native_decide|ofReduceBool|ofReduceNat|trustCompiler": "trusts compiled code",
    r"unsafe|extern|implemented_by|csimp": "lets running code differ from the definition",
    r"run_cmd|run_elab|run_meta|initialize|builtin_initialize": "runs code while checking",
    r"elab|elab_rules|macro|macro_rules|addDecl": "extends the language that is being checked",
    r"partial": "has no definition to reason about",
}
_FORBIDDEN = [(re.compile(rf"(?<![\w.«])(?:{words})(?![\w»])"), words, why) for words, why in FORBIDDEN.items()]
_OPTIONS = re.compile(r"debug\.skipKernelTC|decide\s*\+native|\+native|autoImplicit\s+true|^\s*#\w+")

_DECLARATION = re.compile(
    r"^(?:@\[[^\]]*\]\s*)*(?P<modifiers>(?:(?:private|protected|noncomputable|public)\s+)*)"
    r"(?P<kind>def|theorem|abbrev|structure|class|inductive|lemma)\s+(?P<name>[^\s({\[:]+)"
)
_FIELD = re.compile(r"^  (?P<name>[A-Za-z_]\w*)\s*:(?!=)")
_CONSTRUCTOR = re.compile(r"^  \| (?P<name>\w+)")
_TRANSPARENT = re.compile(r"^\s*(?:@\[[^\]]*\]|omit\b.*\bin|set_option\b.*\bin|open\b.*\bin|variable\b.*\bin)\s*$")


@dataclass(frozen=True)
class Finding:
    """Something wrong in a source file: path, line from 1, reason."""

    path: Path
    line: int
    reason: str


@dataclass(frozen=True)
class Headline:
    """A claim of the root file: theorem name, the one sentence of its docstring, and its line."""

    name: str
    sentence: str
    line: int


def strip_comments(text: str) -> str:
    """The text with comments (nested ones too) and string contents blanked; line breaks stay."""
    out: list[str] = []
    i, depth, in_line, in_string = 0, 0, False, False
    while i < len(text):
        two = text[i : i + 2]
        char = text[i]
        if in_line:
            in_line = char != "\n"
        elif depth:
            if two in ("/-", "-/"):
                depth += 1 if two == "/-" else -1
                out.append("  ")
                i += 2
                continue
        elif in_string:
            if char == "\\":
                out.append("  ")
                i += 2
                continue
            in_string = char != '"'
        elif two == "/-":
            depth = 1
            out.append("  ")
            i += 2
            continue
        elif two == "--":
            in_line = True
        elif char == '"':
            in_string = True
        else:
            out.append(char)
            i += 1
            continue
        out.append("\n" if char == "\n" else " ")
        i += 1
    return "".join(out)


def check_words(module: Module) -> list[Finding]:
    """Words that the sources may not hold outside comments and strings."""
    findings = []
    for number, line in enumerate(strip_comments(module.text).splitlines(), 1):
        for pattern, _, why in _FORBIDDEN:
            if match := pattern.search(line):
                findings.append(Finding(module.path, number, f"`{match[0]}` is not allowed here: it {why}"))
        if match := _OPTIONS.search(line):
            findings.append(Finding(module.path, number, f"`{match[0].strip()}` is not allowed here"))
    return findings


def check_docstrings(module: Module) -> list[Finding]:
    """Every public declaration, structure field and constructor has a docstring."""
    findings = []
    code = strip_comments(module.text).splitlines()
    raw = module.text.splitlines()
    block: str | None = None
    for number, line in enumerate(code, 1):
        if line.strip() and not line.startswith(" "):
            block = None
        if match := _DECLARATION.match(line):
            if match["kind"] in ("structure", "class", "inductive"):
                block = match["kind"]
            if "private" not in match["modifiers"] and not _documented(raw, number):
                findings.append(Finding(module.path, number, f"{match['kind']} {match['name']} has no docstring"))
        elif (
            block
            and (match := (_CONSTRUCTOR if block == "inductive" else _FIELD).match(line))
            and not _documented(raw, number)
        ):
            findings.append(Finding(module.path, number, f"{match['name']} has no docstring"))
    return findings


def _documented(raw: list[str], number: int) -> bool:
    """Whether the declaration on this line (from 1) has a docstring right before it."""
    at = number - 2
    while at >= 0 and _TRANSPARENT.match(raw[at]):
        at -= 1
    if at < 0 or not raw[at].rstrip().endswith("-/"):
        return False
    while at >= 0 and "/-" not in raw[at]:
        at -= 1
    return at >= 0 and raw[at].lstrip().startswith("/--")


def check_imports(modules: dict[str, Module]) -> list[Finding]:
    """Every file is reached from its root, imports nothing foreign, and the specification imports no proof."""
    findings = []
    reached: set[str] = set()
    for root in ROOTS:
        try:
            reached |= {module.name for module in order(modules, (root,))}
        except FlattenError as error:
            place, _, reason = str(error).partition(": ")
            path, _, line = place.rpartition(":")
            findings.append(Finding(Path(path or place), int(line) if line.isdigit() else 1, reason))
            return findings
    for name, module in modules.items():
        if name not in reached:
            findings.append(Finding(module.path, 1, f"no root imports {name}"))
        for imported, line in module.imports:
            head = imported.split(".")[0]
            if head not in ROOTS:
                findings.append(Finding(module.path, line, f"imports {imported}, which is not of this library"))
            elif name.startswith("AttnSpec") and head != "AttnSpec":
                findings.append(Finding(module.path, line, "the specification imports a proof"))
        if name.startswith("AttnSpec"):
            for number, line_text in enumerate(strip_comments(module.text).splitlines(), 1):
                if re.match(r"^\s*(?:@\[[^\]]*\]\s*)*(?:theorem|lemma|example)\b", line_text):
                    findings.append(
                        Finding(module.path, number, "a theorem in the specification: it belongs to proofs/")
                    )
    return findings


def declared(module: Module) -> dict[str, int]:
    """Full names of a file's declarations and structure fields, each with its line."""
    found: dict[str, int] = {}
    spaces: list[str] = []
    block = ""
    for number, line in enumerate(strip_comments(module.text).splitlines(), 1):
        if match := re.match(r"^(namespace|section)\s*([\w.]*)\s*$", line):
            spaces.append(match[2] if match[1] == "namespace" else "")
        elif re.match(r"^end\b", line):
            if spaces:
                spaces.pop()
        elif match := _DECLARATION.match(line):
            name = ".".join([*(s for s in spaces if s), match["name"].strip("«»")])
            found[name] = number
            block = name if match["kind"] in ("structure", "class") else ""
        elif line and not line.startswith(" "):
            block = ""
        elif block and (match := _FIELD.match(line)):
            found[f"{block}.{match['name']}"] = number
    return found


def headlines(root: Path) -> list[Headline]:
    """The claims listed in proofs/AttnProofs.lean, in order."""
    path = root / "proofs" / "AttnProofs.lean"
    raw = path.read_text(encoding="utf-8").splitlines()
    found = []
    for number, line in enumerate(raw, 1):
        match = _DECLARATION.match(line)
        if match and match["kind"] == "theorem":
            end = number - 2
            while end >= 0 and not raw[end].rstrip().endswith("-/"):
                end -= 1
            start = end
            while start >= 0 and not raw[start].lstrip().startswith("/--"):
                start -= 1
            text = " ".join(part.strip() for part in raw[start : end + 1]) if start >= 0 else ""
            found.append(Headline(match["name"], text.removeprefix("/--").removesuffix("-/").strip(), number))
    return found


def check_headlines(root: Path) -> list[Finding]:
    """Claims have names of their own, written like claims."""
    path = root / "proofs" / "AttnProofs.lean"
    findings = []
    seen: set[str] = set()
    for claim in headlines(root):
        if not re.fullmatch(r"[a-z][a-z0-9_]*", claim.name):
            findings.append(Finding(path, claim.line, f"{claim.name}: a claim is named in snake case"))
        if claim.name in seen:
            findings.append(Finding(path, claim.line, f"{claim.name} is listed twice"))
        seen.add(claim.name)
    return findings


def audit(root: Path) -> list[Finding]:
    """Everything that is wrong with the sources under root/spec and root/proofs, in order of file and line."""
    folders = tuple(root / name for name in FOLDERS)
    try:
        modules = load(folders)
    except FlattenError as error:
        return [Finding(folders[0], 1, str(error))]
    findings = check_imports(modules)
    for module in modules.values():
        findings += check_words(module) + check_docstrings(module)
    findings += check_headlines(root)
    return sorted(findings, key=lambda f: (str(f.path), f.line, f.reason))


def main(root: Path) -> int:
    """Prints the findings; 1 if there are any."""
    findings = audit(root)
    for finding in findings:
        path = finding.path.relative_to(root) if finding.path.is_relative_to(root) else finding.path
        print(f"{path}:{finding.line}: {finding.reason}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[2]))
