"""The callbacks of the parser in C, and the loop over packets, so that a clip needs the GIL once.

With callbacks in Python each picture takes the GIL some six times: seven threads give 178 clips/s
of 16 frames of 340 x 256 pixels, with these 302 (an H200 with 16 cores; native threads some 700).
"""

import ctypes
import functools
import shutil
import subprocess
import tempfile
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_int,
    c_longlong,
    c_ubyte,
    c_uint,
    c_ulonglong,
    c_void_p,
)
from pathlib import Path

from jaxaug.decode.native import libnvcuvid as nv

MAX_SURFACES = 64
MAX_MAPPED = 16
ERRORS_FOUND = -1  # of `State.error`: the status of a picture tells of them

ReadCallback = CFUNCTYPE(None)


class Mapped(Structure):
    """A surface that may be read."""

    _fields_ = [
        ("rank", c_longlong),
        ("pointer", c_ulonglong),
        ("pitch", c_uint),
        ("unused", c_uint),
    ]


class State(Structure):
    """What the callbacks of a session share.

    Attributes:
      parser, decoder: of the session.
      parse, decode, status, map, unmap: functions of libnvcuvid.
      parameters: the `MapParameters` of each surface.
      wanted: a byte for each rank, not zero where the frame is asked for.
      count: of those bytes.
      rank: of the packet that is parsed.
      suit: is called with headers that are not `format`; returns how many surfaces there are then.
      read: is called where surfaces are mapped, as many as may be or all; reads them.
      error: a CUresult, or ERRORS_FOUND; then nothing more is decoded.
      reorders: frames are those of the packets that their surfaces were decoded of, not of the
        times that the parser gives.
      surfaces: of the decoder, 0 where there is none.
      begun: not zero behind the first headers of a video.
      mapped, used: surfaces to be read, and how many.
      ranks: of the picture in each surface.
      unchecked: not zero where a surface's picture may have errors.
      format: that the decoder suits.
    """

    _fields_ = [
        *((name, c_void_p) for name in "parser decoder parse decode status map unmap".split()),
        ("parameters", POINTER(nv.MapParameters)),
        ("wanted", c_void_p),
        ("count", c_longlong),
        ("rank", c_longlong),
        ("suit", nv.SequenceCallback),
        ("read", ReadCallback),
        *((name, c_int) for name in "error reorders outputs used surfaces begun".split()),
        ("mapped", Mapped * MAX_MAPPED),
        ("ranks", c_longlong * MAX_SURFACES),
        ("unchecked", c_ubyte * MAX_SURFACES),
        ("format", nv.Format),
    ]


_SOURCE = r"""
#include <string.h>
#include <time.h>
typedef long long i64;
typedef unsigned long long u64;
typedef struct { unsigned long flags, size; const unsigned char* payload; i64 time; } Packet;
typedef struct { int surface, progressive, top_field_first, repeat; i64 time; } Shown;
typedef struct { int status, others[31]; void* more[8]; } Status;
typedef struct { int progressive, second_field, top_field_first; } MapParameters;  // its start
typedef struct { i64 rank; u64 pointer; unsigned pitch, unused; } Mapped;
typedef struct State State;
struct State {
  void *parser, *decoder;
  int (*parse)(void*, Packet*);
  int (*decode)(void*, void*);
  int (*status)(void*, int, Status*);
  int (*map)(void*, int, u64*, unsigned*, MapParameters*);
  int (*unmap)(void*, u64);
  MapParameters* parameters;
  const unsigned char* wanted;
  i64 count, rank;
  int (*suit)(State*, const void*);
  void (*read)(void);
  int error, reorders, outputs, used, surfaces, begun;
  Mapped mapped[MAX_MAPPED];
  i64 ranks[MAX_SURFACES];
  unsigned char unchecked[MAX_SURFACES], format[FORMAT_BYTES];
};

static int fail(State* s, int error) {
  if (!s->error) s->error = error;
  return 0;
}

static int check(State* s, int surface) {
  s->unchecked[surface] = 0;
  for (;;) {
    Status found = {0};
    int error = s->status(s->decoder, surface, &found);
    if (error == NOT_SUPPORTED) return 1;  // of codecs without a status
    if (error) return fail(s, error);
    if (found.status == FAILED || found.status == CONCEALED) return fail(s, ERRORS_FOUND);
    if (found.status != IN_PROGRESS) return 1;
    struct timespec wait = {0, 100000};
    nanosleep(&wait, 0);
  }
}

static void give_back(State* s) {
  if (s->used) s->read();
  for (int i = 0; i < s->used; ++i) {
    int error = s->unmap(s->decoder, s->mapped[i].pointer);
    if (error) fail(s, error);
  }
  s->used = 0;
}

int finish(State* s) {
  give_back(s);
  for (int surface = 0; surface < MAX_SURFACES && !s->error; ++surface)
    if (s->unchecked[surface]) check(s, surface);
  return s->error;
}

int on_sequence(State* s, const void* format) {
  if (!s->surfaces || memcmp(format, s->format, FORMAT_BYTES)) return s->suit(s, format);
  s->begun = 1;
  return s->surfaces;
}

int on_decode(State* s, const int* picture) {
  int surface = picture[2];
  if (s->error) return 0;
  if (surface < 0 || surface >= MAX_SURFACES) return fail(s, ERRORS_FOUND);
  if (s->unchecked[surface] && !check(s, surface)) return 0;
  int error = s->decode(s->decoder, (void*)picture);
  if (error) return fail(s, error);
  s->unchecked[surface] = 1;
  s->ranks[surface] = s->rank;
  return 1;
}

int on_show(State* s, const Shown* shown) {
  if (s->error) return 0;
  if (!shown) return 1;
  i64 rank = s->reorders ? s->ranks[shown->surface] : shown->time;
  if (rank < 0 || rank >= s->count || !s->wanted[rank]) return 1;
  // `map` would wait for the engine, and whatever else the process gives its GPU would wait for it.
  if (s->unchecked[shown->surface] && !check(s, shown->surface)) return 0;
  if (s->used == s->outputs) give_back(s);
  if (s->error) return 0;
  Mapped* next = &s->mapped[s->used];
  s->parameters->progressive = shown->progressive;
  s->parameters->top_field_first = shown->top_field_first;
  int error = s->map(s->decoder, shown->surface, &next->pointer, &next->pitch, s->parameters);
  if (error) return fail(s, error);
  next->rank = rank;
  s->used += 1;
  return 1;
}

int run(State* s, Packet* packets, int count) {
  for (int i = 0; i < count && !s->error; ++i) {
    s->rank = packets[i].time;
    int error = s->parse(s->parser, &packets[i]);
    if (error) fail(s, error);
  }
  return s->error ? s->error : finish(s);
}
"""


@functools.cache
def compiled() -> ctypes.CDLL | None:
    """Return the callbacks, by the system's C compiler; None where there is none.

    That takes a tenth of a second, once in a process.
    """
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        return None
    numbers = {
        "MAX_MAPPED": MAX_MAPPED,
        "MAX_SURFACES": MAX_SURFACES,
        "FORMAT_BYTES": ctypes.sizeof(nv.Format),
        "ERRORS_FOUND": ERRORS_FOUND,
        "NOT_SUPPORTED": nv.NOT_SUPPORTED,
        "IN_PROGRESS": nv.IN_PROGRESS,
        "FAILED": nv.ERROR,
        "CONCEALED": nv.CONCEALED,
    }
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "loop.c"), Path(folder, "loop.so")
        source.write_text(_SOURCE)
        names = [f"-D{name}={number}" for name, number in numbers.items()]
        command = [compiler, "-O2", "-shared", "-fPIC", *names, "-o", str(library), str(source)]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            loaded = ctypes.CDLL(str(library))
        except (OSError, subprocess.SubprocessError):
            return None
    loaded.run.argtypes = (POINTER(State), c_void_p, c_int)
    loaded.finish.argtypes = (POINTER(State),)
    return loaded
