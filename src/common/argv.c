#include "common/argv.h"

#include <string.h>

#include "common/alloc.h"

char **argv_hide(int argc, char **argv)
{
    size_t pointers = ((size_t)argc + 1) * sizeof *argv, bytes = pointers;

    for (int i = 0; i < argc; i++)
        bytes += strlen(argv[i]) + 1;
    char **copy = k3_zalloc(bytes);
    char *to = (char *)copy + pointers;
    for (int i = 0; i < argc; i++) {
        copy[i] = to;
        to = stpcpy(to, argv[i]) + 1;
        if (i > 0)
            explicit_bzero(argv[i], strlen(argv[i]));
    }
    return copy;
}
