"""Work on a source by pieces, in several processes."""

import os

import pytest

from jaxaug._pieces import run_pieces
from jaxaug.errors import SourceError


def die(source, start):
    os._exit(1)


def test_where_a_process_died_is_told_by_the_size_of_its_pieces():
    with pytest.raises(SourceError, match="within some 8 records from 12 on"):
        next(run_pieces(die, None, [12], 4, 1))
