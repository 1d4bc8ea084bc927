"""What `nvcuvid_loop` has in C, in Python, for systems without a C compiler."""

import time
from ctypes import CFUNCTYPE, POINTER, byref, c_int, c_ubyte, c_uint, c_ulonglong, c_void_p, cast
from typing import Any

from jaxaug.decode.native import libnvcuvid as nv
from jaxaug.decode.native.nvcuvid_loop import ERRORS_FOUND, MAX_SURFACES, State

_POLL_SECONDS = 1e-4  # between looks at a picture that an engine has not finished


class PythonLoop:
    """The functions of `nvcuvid_loop.compiled`, with the same arguments.

    Args:
      library: of `libnvcuvid.load`.
    """

    def __init__(self, library: Any):
        self._library = library
        states = POINTER(State)
        self.on_sequence = CFUNCTYPE(c_int, states, POINTER(nv.Format))(self._on_sequence)
        self.on_decode = CFUNCTYPE(c_int, states, POINTER(nv.Picture))(self._on_decode)
        self.on_show = CFUNCTYPE(c_int, states, POINTER(nv.Shown))(self._on_show)

    def run(self, state: Any, packets: int, count: int) -> int:
        """Parse packets; return what is wrong."""
        state = state._obj
        array = cast(packets, POINTER(nv.Packet))
        for number in range(count):
            if state.error:
                break
            state.rank = array[number].timestamp
            self._try(state, "cuvidParseVideoData", state.parser, byref(array[number]))
        return state.error or self.finish(byref(state))

    def finish(self, state: Any) -> int:
        """Have mapped surfaces read, look for errors in all pictures; return what is wrong."""
        state = state._obj
        self._give_back(state)
        for surface in range(MAX_SURFACES):
            if state.unchecked[surface] and not state.error:
                self._check(state, surface)
        return state.error

    def _give_back(self, state: Any) -> None:
        if state.used:
            state.read()
        for mapped in state.mapped[: state.used]:
            self._try(state, "cuvidUnmapVideoFrame64", state.decoder, mapped.pointer)
        state.used = 0

    def _on_sequence(self, state: Any, found: Any) -> int:
        state, user = state.contents, cast(state, c_void_p)
        if not state.surfaces or bytes(found.contents) != bytes(state.format):
            return state.suit(user, found)
        state.begun = 1
        return state.surfaces

    def _on_decode(self, state: Any, picture: Any) -> int:
        state, surface = state.contents, picture.contents.surface
        if state.error or (state.unchecked[surface] and not self._check(state, surface)):
            return 0
        if not self._try(state, "cuvidDecodePicture", state.decoder, picture):
            return 0
        state.unchecked[surface] = 1
        state.ranks[surface] = state.rank
        return 1

    def _on_show(self, state: Any, shown: Any) -> int:
        state = state.contents
        if state.error or not shown:
            return not state.error
        shown = shown.contents
        rank = state.ranks[shown.surface] if state.reorders else shown.timestamp
        wanted = (c_ubyte * state.count).from_address(state.wanted)
        if not 0 <= rank < state.count or not wanted[rank]:
            return 1
        if state.unchecked[shown.surface] and not self._check(state, shown.surface):
            return 0
        if state.used == state.outputs:
            self._give_back(state)
        if state.error:
            return 0
        place = state.mapped[state.used]
        parameters = state.parameters.contents
        parameters.progressive = shown.progressive
        parameters.top_field_first = shown.top_field_first
        pointer, pitch = c_ulonglong(), c_uint()
        given = (shown.surface, byref(pointer), byref(pitch), byref(parameters))
        if not self._try(state, "cuvidMapVideoFrame64", state.decoder, *given):
            return 0
        place.rank, place.pointer, place.pitch = rank, pointer.value, pitch.value
        state.used += 1
        return 1

    def _check(self, state: Any, surface: int) -> bool:
        """Return True unless the picture of a surface was decoded with errors."""
        state.unchecked[surface] = 0
        found = nv.DecodeStatus(status=nv.IN_PROGRESS)
        while found.status == nv.IN_PROGRESS:
            try:
                self._library.cuvidGetDecodeStatus(state.decoder, surface, byref(found))
            except nv.CuvidError as error:
                if error.status == nv.NOT_SUPPORTED:  # of codecs without a status
                    return True
                state.error = error.status
                return False
            if found.status == nv.IN_PROGRESS:
                time.sleep(_POLL_SECONDS)
        if found.status in (nv.ERROR, nv.CONCEALED):
            state.error = ERRORS_FOUND
        return not state.error

    def _try(self, state: Any, function: str, *given: Any) -> bool:
        """Call a function of the library; note what is wrong."""
        try:
            getattr(self._library, function)(*given)
        except nv.CuvidError as error:
            state.error = state.error or error.status
        return not state.error
