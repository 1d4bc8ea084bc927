"""Docstrings as the site needs them, where Griffe and Markdown would misread them."""

import re

import griffe

EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)
ADJACENT = re.compile(r"\](\s?)\[")  # of matrices and shapes; Markdown takes it for a link


class Docstrings(griffe.Extension):
    """Change docstrings before Griffe parses them."""

    def on_instance(self, *, obj: griffe.Object, **kwargs):
        """Change the docstring of one module, class or function."""
        if obj.docstring is not None:
            obj.docstring.value = for_site(obj.docstring.value)


def for_site(docstring: str) -> str:
    """Return `docstring` as Griffe and Markdown read it right.

    Its summary is one line, of which lists show the whole; examples stand below `Examples:`, which
    Griffe knows; brackets stay brackets.
    """
    summary, blank, rest = docstring.partition("\n\n")
    docstring = " ".join(summary.split()) + blank + rest
    prose, *examples = EXAMPLE.split(docstring, maxsplit=1)
    parts = prose.split("`")
    parts[::2] = [ADJACENT.sub(r"]\1\[", part) for part in parts[::2]]  # not between backticks
    return "Examples:".join(["`".join(parts), *examples])
