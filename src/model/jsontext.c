#include "model/jsontext.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/alloc.h"

static int too_deep(const char *text, size_t len, int max_depth)
{
    int depth = 0, quoted = 0;

    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (quoted) {
            if (c == '\\')
                i++;
            else if (c == '"')
                quoted = 0;
        } else if (c == '"') {
            quoted = 1;
        } else if (c == '{' || c == '[') {
            if (++depth > max_depth)
                return 1;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return 0;
}

json_t *jsontext_parse(const char *file, const char *text, size_t len, int max_depth, struct k3_error *err)
{
    json_error_t why;

    if (too_deep(text, len, max_depth)) {
        k3_errorf(err, "%s: JSON nests more than %d deep", file, max_depth);
        return NULL;
    }
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    if (!root) {
        k3_errorf(err, "%s: line %d, column %d: %s", file, why.line, why.column, why.text);
        return NULL;
    }
    if (!json_is_object(root)) {
        json_decref(root);
        k3_errorf(err, "%s: not a JSON object", file);
        return NULL;
    }
    return root;
}

char *jsontext_load(const char *path, size_t max_bytes, size_t *len, struct k3_error *err)
{
    struct stat sb;
    char *text = NULL;
    size_t got = 0;
    int fd, failed = 1;

    if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0 || fstat(fd, &sb) < 0) {
        k3_errorf(err, "%s: %s", path, strerror(errno));
        goto out;
    }
    if (!S_ISREG(sb.st_mode)) {
        k3_errorf(err, "%s: not a regular file", path);
        goto out;
    }
    if ((uint64_t)sb.st_size > max_bytes) {
        k3_errorf(err, "%s: %lld bytes, more than the %zu that are allowed", path, (long long)sb.st_size, max_bytes);
        goto out;
    }
    if (!(text = k3_try_alloc((size_t)sb.st_size + 1, 1))) {
        k3_errorf(err, "%s: %s", path, strerror(errno));
        goto out;
    }
    while (got < (size_t)sb.st_size) {
        ssize_t n = read(fd, text + got, (size_t)sb.st_size - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            k3_errorf(err, "%s: %s", path, n < 0 ? strerror(errno) : "became shorter while it was read");
            goto out;
        }
        got += (size_t)n;
    }
    *len = got;
    failed = 0;
out:
    if (fd >= 0)
        close(fd);
    if (failed) {
        free(text);
        text = NULL;
    }
    return text;
}
