// Preloaded into both sides of a benchmark: every sync takes a millisecond more.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

static int later(int result) { usleep(1000); return result; }
int fsync(int fd) { return later(((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd)); }
int fdatasync(int fd) { return later(((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd)); }
