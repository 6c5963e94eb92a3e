#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/alloc.h"
#include "text/buf.h"

static char dir[64];
static struct vocab *toy;

void fuzz_fail(const char *file, int line, const char *fmt, ...)
{
    va_list args;

    fprintf(stderr, "%s:%d: ", file, line);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    putc('\n', stderr);
    abort();
}

void fuzz_require_sentence(const struct k3_error *err)
{
    size_t len = strnlen(err->text, sizeof err->text);

    require(len > 0 && len < sizeof err->text, "refused without a sentence");
}

static void remove_dir(void)
{
    DIR *d = opendir(dir);

    for (struct dirent *e; d && (e = readdir(d));)
        unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    rmdir(dir);
}

const char *fuzz_dir(void)
{
    if (!*dir) {
        snprintf(dir, sizeof dir, "%s/k3-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        require(mkdtemp(dir), "%s: %s", dir, strerror(errno));
        atexit(remove_dir);
    }
    return dir;
}

char *fuzz_file(const char *name, const void *data, size_t size)
{
    char *path = k3_asprintf("%s/%s", fuzz_dir(), name);
    FILE *f = fopen(path, "w");

    require(f && fwrite(data, 1, size, f) == size && fclose(f) == 0, "%s: %s", path, strerror(errno));
    return path;
}

static void forget_toy(void)
{
    vocab_destroy(toy);
}

const struct vocab *fuzz_vocab(void)
{
    struct k3_error err = {""};

    if (!toy) {
        char *path = k3_asprintf("%s/tiktoken.model", fuzz_dir());
        require(symlink(FUZZ_VOCAB, path) == 0, "%s: %s", path, strerror(errno));
        toy = vocab_load(fuzz_dir(), &err);
        require(toy, "%s", err.text);
        atexit(forget_toy);
        free(path);
    }
    return toy;
}

char *fuzz_spell(const struct vocab *v, const struct tokens *ids, size_t *len)
{
    struct buf out = {0};

    for (size_t i = 0; i < ids->n; i++) {
        size_t n = 0;
        const char *bytes = vocab_bytes(v, ids->id[i], &n);
        if (bytes)
            buf_add(&out, bytes, n);
        else {
            require(vocab_is_control(v, ids->id[i]), "id %d is outside the vocabulary", ids->id[i]);
            buf_adds(&out, vocab_name(v, ids->id[i]));
        }
    }
    *len = out.n;
    buf_addc(&out, '\0');
    return out.s;
}

uint8_t fuzz_byte(struct fuzz_input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->at++;
}

const char *fuzz_take(struct fuzz_input *in, size_t *len)
{
    const char *s = (const char *)in->at;

    if (*len > in->left)
        *len = in->left;
    in->at += *len;
    in->left -= *len;
    return s;
}
