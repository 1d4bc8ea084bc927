"""Runs over a source, piece by piece, that are killed."""

import contextlib

import pytest


@contextlib.contextmanager
def killed_behind_a_piece(module):
    """Have the run of pieces that a module starts end with an interrupt behind its first piece."""
    run = module.run_pieces

    def killed(*arguments):
        yield next(iter(run(*arguments)))
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "run_pieces", killed)
        yield
