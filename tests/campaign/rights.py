"""Give up the right of the administrator to write everywhere, so that a folder without rights is one."""

from __future__ import annotations

import ctypes
import os

VERSION = 0x20080522  # of capset(2), with two blocks of data
DAC_OVERRIDE, DAC_READ_SEARCH = 1, 2


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Block(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


def give_up_rights() -> None:
    """Let the permissions of files count for this process, whoever runs it."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, blocks = _Header(VERSION, 0), (_Block * 2)()
    if libc.capget(ctypes.byref(header), ctypes.byref(blocks)) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    kept = ~((1 << DAC_OVERRIDE) | (1 << DAC_READ_SEARCH)) & 0xFFFFFFFF
    blocks[0].effective &= kept
    blocks[0].permitted &= kept
    if libc.capset(ctypes.byref(header), ctypes.byref(blocks)) != 0:
        raise OSError(ctypes.get_errno(), "capset")
