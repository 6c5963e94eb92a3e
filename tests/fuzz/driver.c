/* driver.c - a fuzz target over its corpus, without libFuzzer
 *
 *     fuzz-NAME           every seed of corpus/NAME and some mutations of each, always the same ones: one TAP test a
 * seed fuzz-NAME FILE...   these inputs, once each, in this process
 *
 * Each seed has a child process of its own.  The input it is at lies in memory shared with the parent, which writes it
 * to NAME-SEED.crash when the child dies: fuzz-NAME NAME-SEED.crash dies again. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/alloc.h"
#include "fuzz.h"

enum { INPUT_MAX = 1 << 18, MUTATIONS = 100, CHILD_SEC = 120 };

struct input {
    size_t size;
    uint8_t bytes[INPUT_MAX];
};

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static void insert(struct input *in, size_t at, const uint8_t *bytes, size_t n)
{
    if (n > INPUT_MAX - in->size)
        return;
    memmove(in->bytes + at + n, in->bytes + at, in->size - at);
    memcpy(in->bytes + at, bytes, n);
    in->size += n;
}

static void mutate_once(struct input *in, uint64_t *random)
{
    static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xc0, 0xfe, 0xff, '"', '\\', '{', '[', '9', '-', '<', '\n'};
    uint64_t r = draw(random);
    size_t at = in->size ? r % in->size : 0, n = 1 + (r >> 32) % 32;
    uint8_t edge = edges[(r >> 40) % sizeof edges], piece[32];

    if (n > in->size - at)
        n = in->size - at;
    if (n == 0) {
        insert(in, at, &edge, 1);
        return;
    }
    switch (r >> 60) {
    case 0: /* lose the end */
        in->size = at;
        break;
    case 1:
    case 2:
    case 3: /* lose a piece */
        memmove(in->bytes + at, in->bytes + at + n, in->size - at - n);
        in->size -= n;
        break;
    case 4:
    case 5:
    case 6: /* repeat a piece elsewhere */
        memcpy(piece, in->bytes + at, n);
        insert(in, draw(random) % in->size, piece, n);
        break;
    case 7:
    case 8:
    case 9:
        insert(in, at, &edge, 1);
        break;
    case 10:
    case 11:
    case 12:
        in->bytes[at] = edge;
        break;
    default:
        in->bytes[at] ^= (uint8_t)(1 << (r >> 32) % 8);
    }
}

static bool read_input(const char *path, struct input *in)
{
    FILE *f = fopen(path, "r");
    bool whole = false;

    if (f) {
        in->size = fread(in->bytes, 1, INPUT_MAX, f);
        whole = !ferror(f) && getc(f) == EOF;
        fclose(f);
    }
    return whole;
}

/* From memory of its exact size, so that a sanitizer sees a read past its end. */
static void run(const struct input *in)
{
    uint8_t *exact = malloc(in->size ? in->size : 1);

    memcpy(exact, in->bytes, in->size);
    LLVMFuzzerTestOneInput(exact, in->size);
    free(exact);
}

/* In the child. */
static void run_mutations(struct input *in)
{
    struct input *seed = k3_zalloc(sizeof *seed);
    uint64_t random = in->size;

    memcpy(seed, in, sizeof *seed);
    run(in);
    for (int i = 0; i < MUTATIONS; i++) {
        memcpy(in->bytes, seed->bytes, seed->size);
        in->size = seed->size;
        for (int n = (int)(draw(&random) % 4); n >= 0; n--)
            mutate_once(in, &random);
        run(in);
    }
    free(seed);
}

static bool survives(struct input *in)
{
    int status = -1;
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        alarm(CHILD_SEC);
        run_mutations(in);
        exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void keep(const struct input *in, const char *name, const char *seed)
{
    char *path = k3_asprintf("%s-%s.crash", name, seed);
    FILE *f = fopen(path, "w");

    if (f && fwrite(in->bytes, 1, in->size, f) == in->size && fclose(f) == 0)
        printf("# the input is kept: fuzz-%s %s\n", name, path);
    free(path);
}

static int is_seed(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

static int run_corpus(const char *name)
{
    /* Static, because a leak checker does not find what only the stack below a child's exit() holds. */
    static char path[PATH_MAX];
    static struct dirent **seeds;
    struct input *in = mmap(NULL, sizeof *in, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int failed = 0;

    snprintf(path, sizeof path, "%s/%s", FUZZ_CORPUS, name);
    int n = scandir(path, &seeds, is_seed, alphasort);
    if (n <= 0 || in == MAP_FAILED) {
        printf("Bail out! %s: %s\n", path, n == 0 ? "no seeds" : strerror(errno));
        return 1;
    }
    printf("1..%d\n", n);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s/%s", FUZZ_CORPUS, name, seeds[i]->d_name);
        bool good = read_input(path, in) && survives(in);
        printf("%sok %d - %s\n", good ? "" : "not ", i + 1, seeds[i]->d_name);
        if (!good) {
            keep(in, name, seeds[i]->d_name);
            failed = 1;
        }
    }
    for (int i = 0; i < n; i++)
        free(seeds[i]);
    free(seeds);
    munmap(in, sizeof *in);
    return failed;
}

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
    struct input *in;

    if (argc == 1)
        return run_corpus(strncmp(name, "fuzz-", 5) == 0 ? name + 5 : name);
    in = k3_zalloc(sizeof *in);
    for (int i = 1; i < argc; i++) {
        if (!read_input(argv[i], in)) {
            fprintf(stderr, "%s: cannot be read, or larger than %d bytes\n", argv[i], INPUT_MAX);
            free(in);
            return 1;
        }
        run(in);
    }
    free(in);
    return 0;
}
