/* loadbench.c - how near loading comes to what the disk gives
 *
 * The plain read has as many threads and as large reads as loading has (pack.h), past the page cache, into buffers that
 * are there; it hashes nothing and keeps nothing. */
#include "tools/loadbench.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/alloc.h"
#include "common/clock.h"
#include "common/median.h"
#include "gpu/device.h"
#include "model/config.h"
#include "model/pack.h"

enum { DIRECT_ALIGN = 4096 };

struct loadbench {
    const struct loadbench_options *o;
    struct k3_config config;
    struct shard shard;
    struct k3_stream *stream;
    struct pack *pack;
    bool direct;                                            /* the file system takes O_DIRECT */
    double plain[LOADBENCH_ROUNDS], load[LOADBENCH_ROUNDS]; /* seconds */
};

/* --- the plain read ----------------------------------------------------------------------------------------------- */

struct plain {
    int fd;
    uint64_t next, bytes; /* the next chunk's offset, atomic; of the file */
    int failed;           /* errno, atomic */
};

static void *read_chunks(void *arg)
{
    struct plain *p = arg;
    char *room = aligned_alloc(DIRECT_ALIGN, PACK_CHUNK);
    int failed = room ? 0 : ENOMEM;

    while (!failed) {
        uint64_t at = __atomic_fetch_add(&p->next, PACK_CHUNK, __ATOMIC_RELAXED);
        uint64_t end = p->bytes < at + PACK_CHUNK ? p->bytes : at + PACK_CHUNK;
        if (at >= p->bytes)
            break;
        while (at < end && !failed) { /* a direct read ends short only with the file */
            ssize_t n = pread(p->fd, room, PACK_CHUNK, (off_t)at);
            failed = n < 0 ? errno : n == 0 ? EIO : 0;
            at += n > 0 ? (uint64_t)n : 0;
        }
    }
    free(room);
    if (failed)
        __atomic_store_n(&p->failed, failed, __ATOMIC_RELAXED);
    return NULL;
}

static int plain_read(struct loadbench *b, double *seconds, struct k3_error *err)
{
    const char *path = pack_path(b->pack);
    struct plain p = {.bytes = pack_bytes(b->pack)};
    int threads = pack_threads(b->pack), started = 0;
    pthread_t *thread = k3_calloc((size_t)threads, sizeof *thread);

    p.fd = open(path, O_RDONLY | O_CLOEXEC | (b->direct ? O_DIRECT : 0));
    double start = clock_monotonic();
    while (p.fd >= 0 && started < threads && pthread_create(&thread[started], NULL, read_chunks, &p) == 0)
        started++;
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    *seconds = clock_monotonic() - start;
    free(thread);
    if (p.fd < 0)
        return k3_errorf(err, "%s: %s", path, strerror(errno));
    close(p.fd);
    if (!p.failed && started > 0)
        return 0;
    return k3_errorf(err, "%s: %s", path, started ? strerror(p.failed) : "no thread to read it");
}

/* --- rounds ------------------------------------------------------------------------------------------------------- */

static int load(struct loadbench *b, double *seconds, struct k3_error *err)
{
    const struct weights_loading how = {.unverified = b->o->unverified};
    double start = clock_monotonic();
    struct weights *w = weights_load(b->o->model, &b->config, &b->shard, b->stream, &how, err);

    *seconds = clock_monotonic() - start;
    weights_destroy(w);
    return w ? 0 : -1;
}

/* Whoever wrote the file may have left it in the page cache. */
static void forget_file(struct loadbench *b)
{
    int fd = open(pack_path(b->pack), O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    fdatasync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static int run_rounds(struct loadbench *b, struct k3_error *err)
{
    double gb = 1e-9 * (double)pack_bytes(b->pack);

    printf("%s: %.3f GB, backend %s, %s reads, %d threads, hashes %s\n", pack_path(b->pack), gb,
           kern_stream_name(b->stream), b->direct ? "direct" : "no direct", pack_threads(b->pack),
           b->o->unverified ? "not checked" : "checked");
    printf("%6s %12s %12s %8s\n", "round", "plain GB/s", "load GB/s", "share");
    for (int i = 0; i < b->o->rounds; i++) {
        forget_file(b);
        if (plain_read(b, &b->plain[i], err) < 0)
            return -1;
        forget_file(b);
        if (load(b, &b->load[i], err) < 0)
            return -1;
        printf("%6d %12.3f %12.3f %8.3f\n", i + 1, gb / b->plain[i], gb / b->load[i], b->plain[i] / b->load[i]);
        fflush(stdout);
    }
    return 0;
}

static void sum_up(struct loadbench *b, json_t *result)
{
    int n = b->o->rounds, host = kern_is_host(b->stream);
    double plain = median(b->plain, n), load = median(b->load, n), bytes = (double)pack_bytes(b->pack);
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    double peak = 1024.0 * (double)usage.ru_maxrss, beside = peak - (host ? bytes : 0);
    printf("%6s %12.3f %12.3f %8.3f\n", "median", 1e-9 * bytes / plain, 1e-9 * bytes / load, plain / load);
    printf("peak memory of the process %.0f MB, %.0f MB beside the weights\n", 1e-6 * peak, 1e-6 * beside);
    json_object_set_new(result, "file", json_string(pack_path(b->pack)));
    json_object_set_new(result, "bytes", json_real(bytes));
    json_object_set_new(result, "backend", json_string(kern_stream_name(b->stream)));
    json_object_set_new(result, "direct", json_boolean(b->direct));
    json_object_set_new(result, "verified", json_boolean(!b->o->unverified));
    json_object_set_new(result, "threads", json_integer(pack_threads(b->pack)));
    json_object_set_new(result, "rounds", json_integer(n));
    json_object_set_new(result, "plain_GBps", json_real(1e-9 * bytes / plain));
    json_object_set_new(result, "load_GBps", json_real(1e-9 * bytes / load));
    json_object_set_new(result, "share", json_real(plain / load));
    json_object_set_new(result, "peak_bytes", json_real(peak));
    json_object_set_new(result, "beside_bytes", json_real(beside));
}

static int prepare(struct loadbench *b, struct k3_error *err)
{
    struct packinfo info;
    char name[LAYOUT_NAME];

    if (packinfo_read(b->o->model, &info, err) < 0 || k3_config_load(b->o->model, &b->config, err) < 0)
        return -1;
    b->shard = layout_shard(&info.layout, b->o->rank);
    if (b->o->rank >= layout_ranks(&info.layout)) {
        errno = EINVAL;
        return k3_errorf(err, "%s: the ranks of %s are 0 to %d", b->o->model, layout_name(&info.layout, name),
                         layout_ranks(&info.layout) - 1);
    }
    if (!(b->pack = pack_open(b->o->model, &b->config, &b->shard, err)) ||
        !(b->stream = device_stream_create(b->o->backend, 1, err)))
        return -1;
    int fd = open(pack_path(b->pack), O_RDONLY | O_DIRECT | O_CLOEXEC);
    b->direct = fd >= 0;
    if (fd >= 0)
        close(fd);
    return 0;
}

int loadbench(const struct loadbench_options *o, json_t *result, struct k3_error *err)
{
    struct loadbench b = {.o = o};
    int rc = prepare(&b, err) < 0 || run_rounds(&b, err) < 0 ? -1 : 0;

    if (rc == 0)
        sum_up(&b, result);
    pack_close(b.pack);
    kern_stream_destroy(b.stream);
    return rc;
}
