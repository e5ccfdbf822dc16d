"""Limits on file descriptors: connections leave a reserve for journal segments.

The engine needs some to create segments.
"""

import errno
import resource

from onceward import limits

NONE_LEFT = (errno.EMFILE, errno.ENFILE)
"""The errors of a process, and of a system, that has no descriptor left."""


def is_reserved(descriptor: int) -> bool:
    """Whether a new descriptor is among the last that the process may have. The system gives out
    the lowest free number, so the number shows how many are in use."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return False
    return descriptor >= most - min(limits.DESCRIPTORS_RESERVED, most // 4)
