"""Have the site show the `Example:` of a docstring as code: Griffe knows `Examples:` alone."""

import re

import griffe

EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)


class Examples(griffe.Extension):
    """Rename the heading before Griffe parses the docstring."""

    def on_instance(self, *, obj: griffe.Object, **kwargs):
        """Change the docstring of one module, class or function."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub("Examples:", obj.docstring.value)
