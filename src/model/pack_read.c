/* pack_read.c - a pack from disk into an arena: threads read and hash, the caller's copies
 *
 * A thread takes the next chunk of the file, reads it to where it can be hashed, hashes it and hands it to the caller's
 * thread, which alone uses the stream.  In this process' memory that place is the arena itself, else a staging buffer,
 * which goes round. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/alloc.h"
#include "model/pack_private.h"

/* Enough reads in flight for a fast disk, enough threads that hashing (about 1 GB/s each) keeps up with it. */
enum { THREADS_LEAST = 4, THREADS_MOST = 16, SPARE = 2 };
enum { DIRECT_ALIGN = 4096 }; /* of memory, offset and length; covers the block size of every disk */

struct staging {
    uint8_t *room; /* PACK_CHUNK bytes, aligned for direct reads */
    uint8_t *data; /* where this chunk is: room, or in the arena */
    uint64_t offset;
    size_t bytes;
    struct staging *next;
};

struct reader {
    const struct pack *pack;
    uint8_t *to; /* the arena; NULL: nowhere */
    bool to_host, verify;
    int direct, plain; /* the file, opened twice; direct is -1 where the file system refuses */
    bool refused;      /* direct reads failed all the same; atomic */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t next; /* offset of the next chunk to read */
    struct staging *free, *full;
    bool stop;
    struct k3_error err; /* why */
};

static bool aligned(uint64_t x)
{
    return x % DIRECT_ALIGN == 0;
}

/* Read into data, which has room for bytes rounded up to DIRECT_ALIGN where bytes are the file's last. */
static int read_chunk(struct reader *r, uint8_t *data, uint64_t offset, size_t bytes, struct k3_error *err)
{
    for (size_t done = 0; done < bytes;) {
        size_t left = bytes - done;
        bool direct = r->direct >= 0 && !__atomic_load_n(&r->refused, __ATOMIC_RELAXED) && aligned(offset + done);
        size_t ask = direct ? (left + DIRECT_ALIGN - 1) / DIRECT_ALIGN * DIRECT_ALIGN : left;
        ssize_t n = pread(direct ? r->direct : r->plain, data + done, ask, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && direct && errno == EINVAL) {
            __atomic_store_n(&r->refused, true, __ATOMIC_RELAXED);
            continue;
        }
        if (n < 0)
            return k3_errorf(err, "%s: byte %" PRIu64 ": %s", r->pack->path, offset + done, strerror(errno));
        if (n == 0)
            return k3_errorf(err, "%s: ends at byte %" PRIu64 " of %" PRIu64, r->pack->path, offset + done,
                             pack_bytes(r->pack));
        if (!direct)
            posix_fadvise(r->plain, (off_t)(offset + done), n, POSIX_FADV_DONTNEED);
        done += (size_t)n < left ? (size_t)n : left;
    }
    return 0;
}

/* The tensors that lie in block i, by name. */
static int name_block(const struct pack *p, size_t i, struct k3_error *err)
{
    const struct weights_map *m = p->map;
    uint64_t begin = (uint64_t)i * PACK_BLOCK, end = begin + pack_block_bytes(p, i);
    size_t first = weights_map_find(m, begin), last = first;
    struct tensor_desc a, b;

    while (last + 1 < m->count && m->place[last + 1].offset < end)
        last++;
    inventory_describe(&p->config, m->place[first].id.role, m->place[first].id.layer, m->place[first].id.expert, &a);
    inventory_describe(&p->config, m->place[last].id.role, m->place[last].id.layer, m->place[last].id.expert, &b);
    errno = EBADMSG;
    return k3_errorf(err,
                     "%s: block %zu (bytes %" PRIu64 " to %" PRIu64
                     ", %s%s%s) is not what its hash says: k3pack --layout %s "
                     "--rank %d mends it",
                     p->path, i, begin, end - 1, a.name, first == last ? "" : " to ", first == last ? "" : b.name,
                     p->layout, p->rank);
}

static int fetch(struct reader *r, struct staging *s, struct k3_error *err)
{
    if (read_chunk(r, s->data, s->offset, s->bytes, err) < 0)
        return -1;
    size_t wrong = r->verify ? pack_verify(r->pack, s->offset, s->bytes, s->data) : SIZE_MAX;
    return wrong == SIZE_MAX ? 0 : name_block(r->pack, wrong, err);
}

/* The next chunk and where to read it to, or NULL: there is none. */
static struct staging *next_chunk(struct reader *r)
{
    uint64_t bytes = pack_bytes(r->pack);

    while (!r->stop && r->next < bytes && !r->free)
        pthread_cond_wait(&r->changed, &r->lock);
    if (r->stop || r->next == bytes)
        return NULL;
    struct staging *s = r->free;
    r->free = s->next;
    s->offset = r->next;
    s->bytes = bytes - r->next < PACK_CHUNK ? (size_t)(bytes - r->next) : PACK_CHUNK;
    r->next += s->bytes;
    uint8_t *place = r->to + s->offset;
    s->data = r->to_host && aligned((uintptr_t)place) && aligned(s->bytes) ? place : s->room;
    return s;
}

static void *work(void *arg)
{
    struct reader *r = arg;
    struct k3_error err;
    struct staging *s;

    pthread_mutex_lock(&r->lock);
    while ((s = next_chunk(r))) {
        pthread_mutex_unlock(&r->lock);
        int rc = fetch(r, s, &err);
        pthread_mutex_lock(&r->lock);
        if (rc < 0 && !r->stop) {
            r->stop = true;
            r->err = err;
        }
        s->next = r->full;
        r->full = s;
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static int copy_to(struct reader *r, struct k3_stream *stream, const struct staging *s, struct k3_error *err)
{
    if (!r->to || s->data != s->room)
        return 0;
    if (kern_copy(stream, r->to + s->offset, s->bytes, s->data, s->bytes, s->bytes, 1) == 0 && kern_sync(stream) == 0)
        return 0;
    return k3_errorf(err, "%s: cannot be copied to the memory of backend %s: %s", r->pack->path,
                     kern_stream_name(stream), kern_stream_error(stream));
}

/* Take what the threads have read until all of it is there. */
static int collect(struct reader *r, struct k3_stream *stream, const struct weights_loading *how, struct k3_error *err)
{
    uint64_t done = 0, total = pack_bytes(r->pack);
    int rc = 0;

    pthread_mutex_lock(&r->lock);
    while (done < total && !r->stop) {
        struct staging *s = r->full;
        if (!s) {
            pthread_cond_wait(&r->changed, &r->lock);
            continue;
        }
        r->full = s->next;
        pthread_mutex_unlock(&r->lock);
        rc = copy_to(r, stream, s, err);
        done += s->bytes;
        if (rc == 0 && how->progress)
            how->progress(done, total, how->arg);
        pthread_mutex_lock(&r->lock);
        r->stop |= rc < 0;
        s->next = r->free;
        r->free = s;
        pthread_cond_broadcast(&r->changed);
    }
    if (rc == 0 && r->stop) {
        if (err)
            *err = r->err;
        rc = -1;
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}

static int open_file(struct reader *r, struct k3_error *err)
{
    if ((r->plain = open(r->pack->path, O_RDONLY | O_CLOEXEC)) < 0)
        return k3_errorf(err, "%s: %s", r->pack->path, strerror(errno));
    r->direct = open(r->pack->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    return 0;
}

static void close_file(struct reader *r)
{
    if (r->plain >= 0)
        close(r->plain);
    if (r->direct >= 0)
        close(r->direct);
}

int pack_threads(const struct pack *p)
{
    uint64_t cpus = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN), chunks = pack_bytes(p) / PACK_CHUNK + 1;
    uint64_t n = cpus < THREADS_LEAST ? THREADS_LEAST : cpus > THREADS_MOST ? THREADS_MOST : cpus;

    return (int)(n < chunks ? n : chunks);
}

static int run_threads(struct reader *r, int threads, struct k3_stream *stream, const struct weights_loading *how,
                       struct k3_error *err)
{
    pthread_t thread[THREADS_MOST];
    int started = 0, rc = 0, failed = 0;

    while (started < threads && (failed = pthread_create(&thread[started], NULL, work, r)) == 0)
        started++;
    if (started == 0)
        rc = k3_errorf(err, "%s: no thread to read it: %s", r->pack->path, strerror(failed));
    else
        rc = collect(r, stream, how, err);
    while (started > 0)
        pthread_join(thread[--started], NULL);
    return rc;
}

int pack_read(const struct pack *p, void *to, struct k3_stream *stream, const struct weights_loading *how,
              struct k3_error *err)
{
    struct reader r = {.pack = p,
                       .to = to,
                       .to_host = to && kern_is_host(stream),
                       .verify = !how->unverified,
                       .direct = -1,
                       .plain = -1,
                       .lock = PTHREAD_MUTEX_INITIALIZER,
                       .changed = PTHREAD_COND_INITIALIZER};
    int threads = pack_threads(p), rc = -1;
    size_t buffers = (size_t)threads + SPARE;
    struct staging *staging = k3_calloc(buffers, sizeof *staging);
    uint8_t *rooms = kern_alloc_host(stream, buffers * PACK_CHUNK);

    if (!rooms) {
        k3_errorf(err, "no memory for %zu buffers of %d bytes to read into: %s", buffers, PACK_CHUNK,
                  kern_stream_error(stream));
        goto out;
    }
    for (size_t i = 0; i < buffers; i++) {
        staging[i].room = rooms + i * PACK_CHUNK;
        staging[i].next = r.free;
        r.free = &staging[i];
    }
    if (open_file(&r, err) == 0)
        rc = run_threads(&r, threads, stream, how, err);
out:
    close_file(&r);
    kern_free_host(stream, rooms, buffers * PACK_CHUNK);
    free(staging);
    return rc;
}
