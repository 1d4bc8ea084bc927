"""How finely is the code of a package cut? Counts, to be compared between packages.

    python benchmarks/house.py jaxaug jaxaug/augment path/to/optax/optax

tokens: for each line of code, without docstrings and comments.
imports: modules of its own package that a file imports, the median and the ninetieth percentile.
once: private functions that one place of their file alone uses, per 1,000 lines.
Tests inside of a package do not count.
"""

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path
from statistics import median

LAYOUT = {
    tokenize.ENCODING,
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTIONS)
COLUMNS = "{:<28} {:>6} {:>8} {:>7} {:>8} {:>6}"


def files_of(package: Path) -> list[Path]:
    """Return the Python files of a package or of one file, without tests."""
    if package.is_file():
        return [package]
    found = sorted(package.rglob("*.py"))
    return [path for path in found if not is_test(path.relative_to(package))]


def is_test(path: Path) -> bool:
    """Return True for a file of tests, and for one in a folder of them."""
    tests = re.compile(r"tests?|test_.*|.*_test|conftest")
    return any(tests.fullmatch(part.removesuffix(".py")) for part in path.parts)


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that docstrings stand on."""
    lines = set()
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            lines |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def count_tokens(text: str, tree: ast.Module) -> tuple[int, int]:
    """Return the tokens of the code and the lines that they stand on."""
    documented = docstring_lines(tree)
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in LAYOUT and token.start[0] not in documented
    ]
    lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    return len(tokens), len(lines)


def own_imports(tree: ast.Module, path: Path) -> int:
    """Return how many modules of its own top-level package a file imports."""
    root = path.resolve().parent
    while (root.parent / "__init__.py").exists():
        root = root.parent
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names if each.name.split(".")[0] == root.name}
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level or module.split(".")[0] == root.name:
                found.add((node.level, module))
    return len(found)


def used_once(tree: ast.Module) -> int:
    """Return how many private functions of a file are named in one place of it alone."""
    read = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    functions = [node.name for node in tree.body if isinstance(node, FUNCTIONS)]
    return sum(name.startswith("_") and read[name] == 1 for name in functions)


def percentile(numbers: list[int], share: float) -> int:
    """Return the number below which `share` of them lie."""
    return sorted(numbers)[min(int(len(numbers) * share), len(numbers) - 1)]


def measure(package: Path) -> str:
    """Return one line of the table."""
    paths = files_of(package)
    texts = [path.read_text() for path in paths]
    trees = [ast.parse(text) for text in texts]
    counted = [count_tokens(text, tree) for text, tree in zip(texts, trees, strict=True)]
    tokens, code = (sum(numbers) for numbers in zip(*counted, strict=True))
    imports = [own_imports(tree, path) for tree, path in zip(trees, paths, strict=True)]
    lines = sum(len(text.splitlines()) for text in texts)
    return COLUMNS.format(
        "/".join(package.parts[-2:]),
        len(paths),
        lines,
        f"{tokens / max(code, 1):.2f}",
        f"{median(imports):g}/{percentile(imports, 0.9)}",
        f"{1000 * sum(map(used_once, trees)) / max(lines, 1):.1f}",
    )


def main() -> None:
    """Print the table of the packages that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("packages", nargs="*", type=Path, default=[Path("jaxaug")])
    packages = parser.parse_args().packages
    print(COLUMNS.format("package", "files", "lines", "tokens", "imports", "once"))
    for package in packages:
        print(measure(package))
        for part in sorted(package.glob("*/__init__.py")):
            print(measure(part.parent))


if __name__ == "__main__":
    main()
