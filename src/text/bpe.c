#include "text/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"

#define NO_RANK (-1)

struct entry {
    const char *bytes;
    uint32_t len;
};

struct slot {
    uint32_t hash;
    int32_t rank; /* NO_RANK: free */
};

/* Open addressing, at most half full. */
struct bpe {
    struct entry *entries; /* by rank */
    struct slot *slots;
    uint32_t mask;
    int32_t n;
    size_t longest;
};

struct bpe *bpe_create(size_t n)
{
    struct bpe *b = k3_zalloc(sizeof *b);
    size_t slots = 1024;

    while (slots < 2 * n)
        slots *= 2;
    b->entries = k3_calloc(n, sizeof *b->entries);
    b->slots = k3_calloc(slots, sizeof *b->slots);
    b->mask = (uint32_t)slots - 1;
    for (size_t i = 0; i < slots; i++)
        b->slots[i].rank = NO_RANK;
    return b;
}

void bpe_destroy(struct bpe *b)
{
    if (!b)
        return;
    free(b->entries);
    free(b->slots);
    free(b);
}

/* FNV-1a, its 64 bits folded.  The vocabulary decides what is in the table, so a text cannot crowd a chain. */
static uint32_t hash_of(const char *bytes, size_t len)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < len; i++)
        h = (h ^ (uint8_t)bytes[i]) * 0x100000001b3u;
    return (uint32_t)(h ^ h >> 32);
}

/* The slot that holds the bytes, or the free one where they belong. */
static struct slot *find(const struct bpe *b, const char *bytes, size_t len, uint32_t hash)
{
    for (uint32_t i = hash & b->mask;; i = (i + 1) & b->mask) {
        struct slot *s = &b->slots[i];
        if (s->rank == NO_RANK)
            return s;
        const struct entry *e = &b->entries[s->rank];
        if (s->hash == hash && e->len == len && memcmp(e->bytes, bytes, len) == 0)
            return s;
    }
}

int32_t bpe_add(struct bpe *b, const char *bytes, size_t len)
{
    uint32_t hash = hash_of(bytes, len);
    struct slot *s = find(b, bytes, len, hash);

    if (s->rank != NO_RANK)
        return -1 - s->rank;
    *s = (struct slot){hash, b->n};
    b->entries[b->n] = (struct entry){bytes, (uint32_t)len};
    if (len > b->longest)
        b->longest = len;
    return b->n++;
}

int32_t bpe_rank(const struct bpe *b, const char *bytes, size_t len)
{
    if (len > b->longest)
        return NO_RANK;
    return find(b, bytes, len, hash_of(bytes, len))->rank;
}

/* The piece as a list of parts, each named by the offset of its first byte. */
struct part {
    uint32_t prev, end; /* end: where the part ends and the next begins */
    int32_t rank;       /* of the part */
    int32_t merged;     /* of the part and the next together, or NO_RANK */
};

/* A pair that was mergeable when it was queued; stale unless the part's `merged` still is this rank. */
struct pair {
    int32_t rank;
    uint32_t at; /* its left part */
};

static int before(struct pair a, struct pair b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static void heap_push(struct pair *heap, size_t *n, struct pair p)
{
    size_t i = (*n)++;

    for (; i > 0 && before(p, heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = p;
}

static struct pair heap_pop(struct pair *heap, size_t *n)
{
    struct pair top = heap[0], last = heap[--*n];
    size_t i = 0;

    for (size_t child; (child = 2 * i + 1) < *n; i = child) {
        if (child + 1 < *n && before(heap[child + 1], heap[child]))
            child++;
        if (!before(heap[child], last))
            break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

/* See which token the part at `at` and its neighbour would make, and queue it. */
static void queue_pair(const struct bpe *b, const char *piece, size_t len, struct part *part, uint32_t at,
                       struct pair *heap, size_t *n)
{
    uint32_t next = part[at].end;

    part[at].merged = next == len ? NO_RANK : bpe_rank(b, piece + at, part[next].end - at);
    if (part[at].merged != NO_RANK)
        heap_push(heap, n, (struct pair){part[at].merged, at});
}

static void *room(void **p, size_t *cap, size_t count, size_t bytes)
{
    if (*cap < count) {
        *p = k3_reallocarray(*p, count, bytes);
        *cap = count;
    }
    return *p;
}

void bpe_scratch_free(struct bpe_scratch *s)
{
    free(s->parts);
    free(s->heap);
    *s = (struct bpe_scratch){0};
}

static void merge_piece(const struct bpe *b, const char *piece, size_t len, struct bpe_scratch *s, struct tokens *out)
{
    struct part *part = room(&s->parts, &s->parts_cap, len, sizeof *part);
    /* One entry for each first pair, two for each of the at most len - 1 merges. */
    struct pair *heap = room(&s->heap, &s->heap_cap, 3 * len, sizeof *heap);
    size_t n = 0;

    for (uint32_t i = 0; i < len; i++)
        part[i] = (struct part){.prev = i - 1, .end = i + 1, .rank = bpe_rank(b, piece + i, 1)};
    for (uint32_t i = 0; i < len; i++)
        queue_pair(b, piece, len, part, i, heap, &n);

    while (n > 0) {
        struct pair p = heap_pop(heap, &n);
        struct part *left = &part[p.at];
        if (left->merged != p.rank)
            continue;
        struct part *right = &part[left->end];
        right->merged = NO_RANK; /* swallowed: what is queued for it is stale */
        left->rank = p.rank;
        left->end = right->end;
        if (left->end < len)
            part[left->end].prev = p.at;
        queue_pair(b, piece, len, part, p.at, heap, &n);
        if (p.at > 0)
            queue_pair(b, piece, len, part, left->prev, heap, &n);
    }
    for (uint32_t i = 0; i < len; i = part[i].end)
        tokens_push(out, part[i].rank);
}

void bpe_encode(const struct bpe *b, const char *piece, size_t len, struct bpe_scratch *s, struct tokens *out)
{
    int32_t whole = bpe_rank(b, piece, len);

    if (whole != NO_RANK)
        tokens_push(out, whole);
    else
        merge_piece(b, piece, len, s, out);
}
