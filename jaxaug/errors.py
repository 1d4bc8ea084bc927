"""The exceptions of jaxaug. Wrong arguments raise ValueError and TypeError."""


class JaxaugError(Exception):
    """The base class of all exceptions of jaxaug.

    Example:
      >>> from jaxaug import iterators
      >>> try:
      ...     iterators.ImageFolder("missing")
      ... except JaxaugError as error:
      ...     print(type(error).__name__)
      SourceError
    """


class DecodeError(JaxaugError):
    """The bytes of one record cannot be decoded.

    Attributes:
      reason: the fault of the bytes, in one clause.
      medium: "image", "sound" or "video", as the message calls what has no record's number.
      index: the number of the record in its source, or its row in the batch without a source.
      file: the path of the record; None for one in memory.
      byte_count: the length of the record; None if it was never read.

    Example:
      >>> print(DecodeError("the file is empty", index=3, file="cat.jpg", byte_count=0))
      cannot decode record 3 (cat.jpg, 0 bytes): the file is empty
    """

    def __init__(
        self,
        reason: str,
        *,
        medium: str = "image",
        index: int | None = None,
        file: str | None = None,
        byte_count: int | None = None,
    ):
        self.reason = reason
        self.medium = medium
        self.index = index
        self.file = file
        self.byte_count = byte_count
        where = medium if index is None else f"record {index}"
        details = [file] if file else []
        if byte_count is not None:
            details.append(f"{byte_count} bytes")
        context = f" ({', '.join(details)})" if details else ""
        super().__init__(f"cannot decode {where}{context}: {reason}")

    def __reduce__(self):
        # Keyword-only arguments do not survive the default pickling of exceptions.
        arguments = (self.reason, self.medium, self.index, self.file, self.byte_count)
        return _rebuild_decode_error, arguments


class SourceError(JaxaugError):
    """A source (folder, index or container file) is missing, empty, damaged or changed.

    Example:
      >>> from jaxaug import iterators
      >>> try:
      ...     iterators.TFRecord("missing.tfrecord")
      ... except SourceError:
      ...     print("no such file")
      no such file
    """


class StateError(JaxaugError):
    """A saved state does not fit the Loader; the message names the difference.

    Example:
      >>> issubclass(StateError, JaxaugError)
      True
    """


class ProcessError(JaxaugError):
    """Another process of a Loader has ended, or does not make the same calls.

    It comes from `next`, or from the call that waits for the other process. A process that waits
    in a collective, where no exception can reach it, is ended with this error on stderr.

    Example:
      >>> issubclass(ProcessError, JaxaugError)
      True
    """


class PrecisionWarning(UserWarning):
    """Images of more than 8 bits a sample lose all but the upper 8: a filter can name this.

    Example:
      >>> import warnings
      >>> warnings.simplefilter("ignore", PrecisionWarning)
    """


def _rebuild_decode_error(reason, medium, index, file, byte_count):
    return DecodeError(reason, medium=medium, index=index, file=file, byte_count=byte_count)
