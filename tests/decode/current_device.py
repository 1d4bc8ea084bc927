"""The device that is current in each thread, as CUDA keeps it, for GPUs that are made up."""

import itertools
import threading

NONE = -1  # where a thread has chosen none, and CUDA would take the first


class CurrentDevice:
    """Stands in for what CUDA calls by the device that is current.

    What is used where another device is current than where it was made is an error.

    Attributes:
      streams: the device of each stream that was not destroyed, by its number.
    """

    def __init__(self):
        self._local = threading.local()
        self.streams = {}
        self._numbers = itertools.count(1)

    @property
    def ordinal(self):
        """The calling thread's device."""
        return getattr(self._local, "ordinal", NONE)

    def chosen(self):
        """Return the calling thread's device, one that it has chosen."""
        assert self.ordinal != NONE, "a thread calls CUDA without a device"
        return self.ordinal

    def check(self, ordinal):
        """Raise where a device is not the calling thread's."""
        assert self.ordinal == ordinal, f"of device {ordinal}, where {self.ordinal} is current"

    def check_stream(self, number):
        """Raise where a stream is not of the calling thread's device."""
        self.check(self.streams.get(number, self.ordinal))

    def call(self, name, *given):
        """Return what a function of CUDA's runtime does that asks for devices or for streams."""
        if name == "cudaSetDevice":
            self._local.ordinal = given[0]
        elif name == "cudaGetDevice":
            return self.ordinal
        elif name == "cudaDeviceGetStreamPriorityRange":
            return 0, -5
        elif name == "cudaStreamCreateWithPriority":
            number = next(self._numbers)
            self.streams[number] = self.ordinal
            return number
        elif name == "cudaStreamDestroy":
            self.check(self.streams.pop(given[0], self.ordinal))
        return 0
