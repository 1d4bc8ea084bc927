"""Docstrings and types as the site needs them: read right by Griffe and Markdown, told once."""

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

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs):
        """Leave out what stands beside the type of a field: how its argument is converted."""
        annotation = attr.annotation
        if isinstance(annotation, griffe.ExprSubscript) and str(annotation.left) == "Annotated":
            attr.annotation = annotation.slice.elements[0]

    def on_package(self, *, pkg: griffe.Module, **kwargs):
        """Leave out what a base class describes: `make_params` and `apply` of every operator."""
        described = [(cls, name) for cls in classes_of(pkg) for name in described_above(cls)]
        for cls, name in described:
            del cls.members[name]


def classes_of(module: griffe.Module) -> list[griffe.Class]:
    """Return the classes of a module and of its submodules."""
    own = [member for member in module.members.values() if not member.is_alias]
    found = [member for member in own if isinstance(member, griffe.Class)]
    for member in own:
        if isinstance(member, griffe.Module):
            found += classes_of(member)
    return found


def described_above(cls: griffe.Class) -> list[str]:
    """Return the public members of a class with one line to say, that a base describes as well."""
    bases = [base for base in cls.mro() if base is not cls]
    names = []
    for name, member in cls.members.items():
        docstring = member.docstring
        if name.startswith("_") or docstring is None or "\n" in docstring.value.strip():
            continue
        if any(name in base.members and base.members[name].docstring for base in bases):
            names.append(name)
    return names


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
