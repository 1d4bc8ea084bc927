"""Everything jaxaug raises on purpose, beyond the ValueError and TypeError of a wrong argument."""


class JaxaugError(Exception):
    """The base of jaxaug's own exceptions."""


class DecodeError(JaxaugError):
    """The bytes of one record are not an image that can be decoded.

    Attributes:
      reason: what is wrong with the bytes, in one clause.
      index: the record's index in its source, or its row in the batch when no source is known.
      file: where the record lies, or None when it came from memory.
      byte_count: how many bytes the record has, or None when they were never read.
    """

    def __init__(
        self,
        reason: str,
        *,
        index: int | None = None,
        file: str | None = None,
        byte_count: int | None = None,
    ):
        self.reason = reason
        self.index = index
        self.file = file
        self.byte_count = byte_count
        where = "image" if index is None else f"record {index}"
        details = [
            part for part in (file, None if byte_count is None else f"{byte_count} bytes") if part
        ]
        context = f" ({', '.join(details)})" if details else ""
        super().__init__(f"cannot decode {where}{context}: {reason}")

    def __reduce__(
        self,
    ):  # keyword-only arguments do not survive the default reduction of exceptions
        return _rebuild_decode_error, (self.reason, self.index, self.file, self.byte_count)


class SourceError(JaxaugError):
    """A source of records (a folder, an index, a container file) is missing, empty, damaged or
    changed.
    """


class StateError(JaxaugError):
    """A saved state does not fit the Loader it is given to; the message names the difference."""


def _rebuild_decode_error(reason, index, file, byte_count):
    return DecodeError(reason, index=index, file=file, byte_count=byte_count)
