/* pack_write.c - packs of several ranks at once, to be gone on with after an interruption
 *
 * While it is written the image is called ....k3pack.partial, and beside it ....hashes says for what it is and has the
 * hash of each block that was written.  A block found there is believed when its bytes have that hash, whatever
 * happened in between.  The image gets its name when all is on disk, then the manifest appears. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/alloc.h"
#include "common/fault.h"
#include "model/jsontext.h"
#include "model/modelhash.h"
#include "model/pack_private.h"

enum { THREADS_MOST = 64, BLOCKS = PACK_CHUNK / PACK_BLOCK, PUT_BYTES = 64 << 20 };

/* The head of ....hashes: the hashes follow, zeros for a block that is not written. */
struct journal_head {
    char magic[8];
    char info[504]; /* packinfo_encode() as text, with the rank's number */
};
static const char MAGIC[8] = "k3pack1";

/* One rank's files while they are written. */
struct output {
    struct pack *pack;
    char *partial, *hashes;
    int fd, journal;              /* -1: not open */
    bool whole;                   /* it was there from the beginning */
    struct quantize_error *error; /* [places of the map] */
};

struct writer {
    const struct pack_writing *w;
    struct pack_written *written;
    struct output *out; /* [ranks] */
    uint64_t most;      /* bytes of the largest */

    pthread_mutex_t lock;
    uint64_t offset; /* of the next chunk */
    int rank;        /* ... and whose */
    size_t place;    /* the next to measure, and whose */
    int measured;
    uint64_t done, total;
    bool stop;
    struct k3_error err;
};

/* --- files ---------------------------------------------------------------------------------------------------------
 */

static int write_all(int fd, const char *path, const void *data, size_t bytes, uint64_t offset, struct k3_error *err)
{
    if (fault("pack-disk-full")) {
        errno = ENOSPC;
        return k3_errorf(err, "%s: byte %" PRIu64 ": %s", path, offset, strerror(errno));
    }
    while (bytes > 0) {
        ssize_t n = pwrite(fd, data, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return k3_errorf(err, "%s: byte %" PRIu64 ": %s", path, offset, strerror(errno));
        data = (const char *)data + n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

/* The number of bytes read before an error or the end. */
static size_t read_all(int fd, void *data, size_t bytes, uint64_t offset)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t n = pread(fd, (char *)data + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    return done;
}

static int sync_directory(const char *dir, struct k3_error *err)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;

    if (fd < 0 || (fsync(fd) < 0 && errno != EINVAL))
        rc = k3_errorf(err, "%s: %s", dir, strerror(errno));
    if (fd >= 0)
        close(fd);
    return rc;
}

/* A name that no other process uses, then the right one. */
static int replace(const char *path, const void *data, size_t len, struct k3_error *err)
{
    char *partial = k3_asprintf("%s.XXXXXX", path);
    int fd = mkstemp(partial), rc = -1;

    if (fd < 0) {
        k3_errorf(err, "%s: %s", partial, strerror(errno));
        goto out;
    }
    if (write_all(fd, partial, data, len, 0, err) < 0)
        goto out;
    if (fchmod(fd, 0644) < 0 || fsync(fd) < 0 || rename(partial, path) < 0) {
        k3_errorf(err, "%s: %s", path, strerror(errno));
        goto out;
    }
    rc = 0;
out:
    if (fd >= 0)
        close(fd);
    if (fd >= 0 && rc < 0)
        unlink(partial);
    free(partial);
    return rc;
}

int pack_put(const char *dir, const char *name, const void *data, size_t len, struct k3_error *err)
{
    char *path = k3_asprintf("%s/%s", dir, name), *old = NULL;
    size_t old_len;
    int rc = -1;

    if (access(path, F_OK) < 0) {
        rc = replace(path, data, len, err) < 0 || sync_directory(dir, err) < 0 ? -1 : 0;
        goto out;
    }
    if (!(old = jsontext_load(path, PUT_BYTES, &old_len, err)))
        goto out;
    if (old_len != len || memcmp(old, data, len) != 0)
        k3_errorf(err, "%s: is of another model, layout or form: choose another directory", path);
    else
        rc = 0;
out:
    free(old);
    free(path);
    return rc;
}

/* --- one rank ------------------------------------------------------------------------------------------------------
 */

static off_t hash_at(size_t block)
{
    return (off_t)(sizeof(struct journal_head) + block * PACK_HASH);
}

static struct journal_head head_of(const struct pack *p)
{
    struct journal_head h = {0};
    json_t *info = packinfo_encode(&p->info);
    char *text = json_dumps(info, JSON_COMPACT);

    memcpy(h.magic, MAGIC, sizeof h.magic);
    snprintf(h.info, sizeof h.info, "%d %s", p->rank, text);
    free(text);
    json_decref(info);
    return h;
}

/* A pack that is there: good as it is, or it becomes partial again, to be mended or, where its manifest or length is
 * wrong, written anew. */
static int take_up(struct output *o, const char *dir, struct k3_stream *stream, struct k3_error *err)
{
    static const struct weights_loading verify;
    struct pack *p = o->pack, *there = pack_open(dir, &p->config, &p->shard, NULL);
    int rc = 0;

    if (there && pack_read(there, NULL, stream, &verify, NULL) == 0)
        o->whole = true;
    else if ((rename(p->path, o->partial) < 0 && errno != ENOENT) || unlink(p->manifest) < 0)
        rc = k3_errorf(err, "%s: %s", p->path, strerror(errno));
    else if (there)
        memcpy(p->hash, there->hash, pack_blocks(p) * sizeof *p->hash);
    pack_close(there);
    return rc;
}

/* What an earlier call wrote down, if it was for the same files. */
static int open_journal(struct output *o, struct k3_error *err)
{
    struct journal_head want = head_of(o->pack), is;
    size_t bytes = pack_blocks(o->pack) * PACK_HASH;

    if ((o->journal = open(o->hashes, O_RDWR | O_CREAT | O_CLOEXEC, 0644)) < 0)
        return k3_errorf(err, "%s: %s", o->hashes, strerror(errno));
    if (flock(o->journal, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        return k3_errorf(err, "%s: another k3pack is writing this rank", o->hashes);
    if (read_all(o->journal, &is, sizeof is, 0) == sizeof is && memcmp(&is, &want, sizeof is) == 0) {
        read_all(o->journal, o->pack->hash, bytes, (uint64_t)hash_at(0));
        return 0;
    }
    if (ftruncate(o->journal, 0) < 0)
        return k3_errorf(err, "%s: %s", o->hashes, strerror(errno));
    return write_all(o->journal, o->hashes, &want, sizeof want, 0, err) < 0 ||
                   write_all(o->journal, o->hashes, o->pack->hash, bytes, (uint64_t)hash_at(0), err) < 0
               ? -1
               : 0;
}

static int open_output(struct output *o, const struct pack_writing *w, const struct packinfo *info, int rank,
                       struct k3_stream *stream, struct k3_error *err)
{
    struct shard sh = layout_shard(w->layout, rank);

    o->fd = o->journal = -1;
    o->pack = pack_create(w->dir, w->config, &sh);
    o->pack->info = *info;
    o->error = k3_calloc(o->pack->map->count, sizeof *o->error);
    o->partial = k3_asprintf("%s.partial", o->pack->path);
    o->hashes = k3_asprintf("%s.hashes", o->pack->path);
    if (access(o->pack->manifest, F_OK) == 0 && take_up(o, w->dir, stream, err) < 0)
        return -1;
    if (o->whole)
        return 0;
    if (open_journal(o, err) < 0)
        return -1;
    /* Killed between the last two steps: the image has its name, but there is no manifest yet. */
    if (access(o->pack->path, F_OK) == 0 && rename(o->pack->path, o->partial) < 0)
        return k3_errorf(err, "%s: %s", o->pack->path, strerror(errno));
    if ((o->fd = open(o->partial, O_RDWR | O_CREAT | O_CLOEXEC, 0644)) < 0 ||
        ftruncate(o->fd, (off_t)pack_bytes(o->pack)) < 0)
        return k3_errorf(err, "%s: %s", o->partial, strerror(errno));
    return 0;
}

static void close_output(struct output *o)
{
    if (o->fd >= 0)
        close(o->fd);
    if (o->journal >= 0)
        close(o->journal);
    free(o->partial);
    free(o->hashes);
    free(o->error);
    pack_close(o->pack);
}

/* All is written: on disk with it, then under its name, then the manifest that says so. */
static int finish_output(struct output *o, const struct pack_writing *w, struct k3_error *err)
{
    char *manifest = pack_manifest(o->pack, w->source, o->error);
    int rc = -1;

    if (fsync(o->fd) < 0 || rename(o->partial, o->pack->path) < 0) {
        k3_errorf(err, "%s: %s", o->partial, strerror(errno));
        goto out;
    }
    posix_fadvise(o->fd, 0, 0, POSIX_FADV_DONTNEED);
    if (fault("pack-dies-unfinished"))
        raise(SIGKILL);
    if (replace(o->pack->manifest, manifest, strlen(manifest), err) < 0 || sync_directory(w->dir, err) < 0)
        goto out;
    unlink(o->hashes);
    rc = 0;
out:
    free(manifest);
    return rc;
}

static int check_space(const struct writer *wr, struct k3_error *err)
{
    uint64_t need = 0;
    struct statvfs fs;
    struct stat st;

    for (int i = 0; i < wr->w->ranks; i++) {
        const struct output *o = &wr->out[i];
        uint64_t have = 0;
        if (o->whole)
            continue;
        if (fstat(o->fd, &st) == 0)
            have = (uint64_t)st.st_blocks * 512;
        need += have < pack_bytes(o->pack) ? pack_bytes(o->pack) - have : 0;
    }
    if (statvfs(wr->w->dir, &fs) < 0)
        return k3_errorf(err, "%s: %s", wr->w->dir, strerror(errno));
    uint64_t left = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (need <= left)
        return 0;
    errno = ENOSPC;
    return k3_errorf(err, "%s: has %.2f GB left, and %d rank(s) of %s take %.2f GB more", wr->w->dir,
                     1e-9 * (double)left, wr->w->ranks, wr->out[0].pack->layout, 1e-9 * (double)need);
}

/* --- chunks --------------------------------------------------------------------------------------------------------
 */

static int is_written(const struct output *o, uint64_t offset, size_t bytes, void *room)
{
    static const uint8_t none[PACK_HASH];
    size_t first = (size_t)(offset / PACK_BLOCK);

    for (size_t at = 0; at < bytes; at += PACK_BLOCK)
        if (memcmp(o->pack->hash[first + at / PACK_BLOCK], none, sizeof none) == 0)
            return 0;
    return read_all(o->fd, room, bytes, offset) == bytes && pack_verify(o->pack, offset, bytes, room) == SIZE_MAX;
}

static int write_chunk(const struct output *o, const struct pack_writing *w, uint64_t offset, size_t bytes, void *room,
                       struct k3_error *err)
{
    size_t first = (size_t)(offset / PACK_BLOCK), blocks = (bytes + PACK_BLOCK - 1) / PACK_BLOCK;

    if (pack_fill(o->pack, w->checkpoint, offset, bytes, room, err) < 0)
        return -1;
    for (size_t i = 0; i < blocks; i++)
        pack_hash((const char *)room + i * PACK_BLOCK, pack_block_bytes(o->pack, first + i), o->pack->hash[first + i]);
    if (write_all(o->fd, o->partial, room, bytes, offset, err) < 0 ||
        write_all(o->journal, o->hashes, o->pack->hash[first], blocks * PACK_HASH, (uint64_t)hash_at(first), err) < 0)
        return -1;
    sync_file_range(o->fd, (off_t)offset, (off_t)bytes, SYNC_FILE_RANGE_WRITE); /* begins; finish_output() waits */
    if (fault("pack-dies"))
        raise(SIGKILL);
    return 0;
}

/* Chunk by chunk, each of all ranks: they want the same tensors of the checkpoint about then. */
static int next_chunk(struct writer *wr, int *rank, uint64_t *offset, size_t *bytes)
{
    while (!wr->stop && wr->offset < wr->most) {
        *rank = wr->rank++;
        *offset = wr->offset;
        if (wr->rank == wr->w->ranks) {
            wr->rank = 0;
            wr->offset += PACK_CHUNK;
        }
        uint64_t end = pack_bytes(wr->out[*rank].pack);
        if (wr->out[*rank].whole || *offset >= end)
            continue;
        *bytes = end - *offset < PACK_CHUNK ? (size_t)(end - *offset) : PACK_CHUNK;
        return 1;
    }
    return 0;
}

static void *work(void *arg)
{
    struct writer *wr = arg;
    void *room = k3_zalloc(PACK_CHUNK);
    uint64_t offset;
    size_t bytes;
    int rank;

    pthread_mutex_lock(&wr->lock);
    while (next_chunk(wr, &rank, &offset, &bytes)) {
        struct k3_error err;
        pthread_mutex_unlock(&wr->lock);
        int there = is_written(&wr->out[rank], offset, bytes, room);
        int rc = there ? 0 : write_chunk(&wr->out[rank], wr->w, offset, bytes, room, &err);
        pthread_mutex_lock(&wr->lock);
        if (rc < 0 && !wr->stop) {
            wr->stop = true;
            wr->err = err;
        }
        wr->written[rank].kept += there ? bytes : 0;
        wr->done += bytes;
        if (rc == 0 && wr->w->progress)
            wr->w->progress(wr->done, wr->total, wr->w->arg);
    }
    pthread_mutex_unlock(&wr->lock);
    free(room);
    return NULL;
}

/* What quantising cost: of whole tensors and again from the checkpoint, so that a manifest does not depend on where an
 * earlier call stopped, or on who wrote which chunk. */
static void *measure(void *arg)
{
    struct writer *wr = arg;

    pthread_mutex_lock(&wr->lock);
    while (wr->measured < wr->w->ranks) {
        struct output *o = &wr->out[wr->measured];
        size_t i = wr->place++;
        if (o->whole || i == o->pack->map->count) {
            wr->measured++;
            wr->place = 0;
            continue;
        }
        pthread_mutex_unlock(&wr->lock);
        pack_measure(o->pack, wr->w->checkpoint, &o->pack->map->place[i], &o->error[i]);
        pthread_mutex_lock(&wr->lock);
    }
    pthread_mutex_unlock(&wr->lock);
    return NULL;
}

static void run_threads(struct writer *wr, void *(*job)(void *))
{
    pthread_t thread[THREADS_MOST];
    int threads = wr->w->threads < THREADS_MOST ? wr->w->threads : THREADS_MOST, started = 0;

    while (started < threads && pthread_create(&thread[started], NULL, job, wr) == 0)
        started++;
    if (started == 0)
        job(wr);
    while (started > 0)
        pthread_join(thread[--started], NULL);
}

static int write_all_chunks(struct writer *wr, struct k3_error *err)
{
    run_threads(wr, work);
    if (!wr->stop)
        return 0;
    if (err)
        *err = wr->err;
    return -1;
}

static void sum_up(const struct output *o, struct pack_written *written)
{
    for (size_t i = 0; i < o->pack->map->count; i++) {
        int role = o->pack->map->place[i].id.role;
        written->role[role].tensors += o->error[i].norm2 > 0;
        quantize_error_add(&written->role[role].error, &o->error[i]);
    }
}

static int put_info(const char *dir, const struct packinfo *info, struct k3_error *err)
{
    json_t *object = packinfo_encode(info);
    char *text = json_dumps(object, JSON_INDENT(1));
    int rc = pack_put(dir, PACKINFO_NAME, text, strlen(text), err);

    free(text);
    json_decref(object);
    return rc;
}

int pack_write(const struct pack_writing *w, struct pack_written *written, struct k3_error *err)
{
    struct writer wr = {.w = w, .written = written, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct packinfo info = {.layout = *w->layout, .dense = w->config->dense};
    struct k3_stream *stream = kern_stream_create("ref", 1);
    int opened = 0, rc = -1;

    wr.out = k3_calloc((size_t)w->ranks, sizeof *wr.out);
    if (!stream) {
        k3_errorf(err, "backend ref: %s", strerror(errno));
        goto out;
    }
    if (modelhash(w->dir, info.model, err) < 0 || checkpoint_stamp(w->checkpoint, info.stamp, err) < 0 ||
        put_info(w->dir, &info, err) < 0)
        goto out;
    for (; opened < w->ranks; opened++) {
        struct output *o = &wr.out[opened];
        if (open_output(o, w, &info, w->rank[opened], stream, err) < 0) {
            opened++;
            goto out;
        }
        uint64_t bytes = pack_bytes(o->pack);
        written[opened] = (struct pack_written){.bytes = bytes, .kept = o->whole ? bytes : 0};
        wr.total += o->whole ? 0 : bytes;
        wr.most = bytes > wr.most ? bytes : wr.most;
    }
    if (check_space(&wr, err) < 0 || write_all_chunks(&wr, err) < 0)
        goto out;
    run_threads(&wr, measure);
    for (int i = 0; i < w->ranks; i++) {
        sum_up(&wr.out[i], &written[i]);
        if (!wr.out[i].whole && finish_output(&wr.out[i], w, err) < 0)
            goto out;
    }
    rc = 0;
out:
    for (int i = 0; i < opened; i++)
        close_output(&wr.out[i]);
    free(wr.out);
    kern_stream_destroy(stream);
    return rc;
}
