/* memory.cpp - allocations between pages that nobody may touch */
#include "kernels/emu/emu.h"

#include <map>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, CANARY = 0xa5, NAN_BYTES = 1 << 20 };

struct allocation {
    char *pages; /* a guard, n bytes, a guard */
    size_t n, bytes;
};

static std::map<void *, struct allocation> allocations;

/* Large allocations are mostly not used: they begin as copies of the same NAN_BYTES of NaN. */
static bool fill_large(char *p, size_t n)
{
    static int fd = -1;

    if (fd < 0) {
        fd = memfd_create("emulator", MFD_CLOEXEC);
        char *nan = fd < 0 || ftruncate(fd, NAN_BYTES) != 0
                        ? (char *)MAP_FAILED
                        : (char *)mmap(NULL, NAN_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (nan == MAP_FAILED)
            return false;
        memset(nan, 0xff, NAN_BYTES);
        munmap(nan, NAN_BYTES);
    }
    for (size_t at = 0, most = NAN_BYTES; at < n; at += most)
        if (mmap(p + at, n - at < most ? n - at : most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
                 fd, 0) == MAP_FAILED)
            return false;
    return true;
}

void *emu_alloc(size_t bytes)
{
    size_t n = (bytes + PAGE - 1) / PAGE * PAGE;
    char *pages = (char *)mmap(NULL, n + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *p = pages + PAGE;

    if (pages == MAP_FAILED)
        return NULL;
    if (mprotect(p, n, PROT_READ | PROT_WRITE) != 0 || (n >= NAN_BYTES && !fill_large(p, n))) {
        munmap(pages, n + 2 * PAGE);
        return NULL;
    }
    char *data = p + (n - bytes) / 16 * 16;
    memset(p, CANARY, (size_t)(data - p));
    if (n < NAN_BYTES)
        memset(data, 0xff, bytes);
    memset(data + bytes, CANARY, (size_t)(p + n - data) - bytes);
    allocations[data] = (struct allocation){pages, n, bytes};
    return data;
}

static void check(const char *from, const char *end, const char *where)
{
    for (; from < end; from++)
        if ((unsigned char)*from != CANARY)
            emu_fail("a kernel wrote %s an allocation", where);
}

void emu_free(void *p)
{
    if (p == NULL)
        return;
    auto found = allocations.find(p);
    if (found == allocations.end())
        emu_fail("%p is freed and was never allocated", p);
    struct allocation a = found->second;
    const char *data = (const char *)p, *first = a.pages + PAGE;
    check(first, data, "in front of");
    check(data + a.bytes, first + a.n, "behind");
    allocations.erase(found);
    munmap(a.pages, a.n + 2 * PAGE);
}
