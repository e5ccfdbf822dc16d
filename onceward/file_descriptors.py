"""Limits on file descriptors: connections leave a reserve for journal segments.

The engine needs descriptors to create segments.
"""

import errno
import resource

from onceward import limits

NONE_LEFT = (errno.EMFILE, errno.ENFILE)
"""The errors when a process, or the system, has no descriptor left."""


def is_reserved(descriptor: int) -> bool:
    """Whether a new descriptor is among the last ones available to the process. The system assigns
    the lowest free number, so the number shows how many are in use."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return False
    return descriptor >= most - min(limits.DESCRIPTORS_RESERVED, most // 4)
