// Preloaded into both sides of a benchmark: every sync takes a millisecond more, also one that
// is part of a write.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

typedef ssize_t write_call(int, const struct iovec *, int, off_t, int);

static int later(int result) { usleep(1000); return result; }
int fsync(int fd) { return later(((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd)); }
int fdatasync(int fd) { return later(((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd)); }

ssize_t pwritev2(int fd, const struct iovec *iov, int count, off_t offset, int flags) {
    ssize_t result = ((write_call *)dlsym(RTLD_NEXT, "pwritev2"))(fd, iov, count, offset, flags);
    if (flags & (RWF_DSYNC | RWF_SYNC)) usleep(1000);
    return result;
}
ssize_t pwritev64v2(int fd, const struct iovec *iov, int count, off_t offset, int flags) {
    return pwritev2(fd, iov, count, offset, flags);
}
