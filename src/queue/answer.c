#include "queue/answer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"

struct piece {
    uint32_t id, ids;   /* first of the answer's ids, and how many */
    uint32_t txt, txts; /* first byte of its text, and how many */
    uint32_t ti;
    enum delta_channel ch;
    char *tn;
};

/* Bytes that grow without realloc(), which may leave a copy of the old ones behind. */
struct bytes {
    void *data;
    size_t n, room;
};

struct answer {
    struct bytes ids; /* uint32_t each */
    struct bytes txt;
    struct bytes pieces; /* struct piece each */
};

static void bytes_erase(struct bytes *b)
{
    if (b->data)
        explicit_bzero(b->data, b->n);
    free(b->data);
    *b = (struct bytes){0};
}

static int bytes_reserve(struct bytes *b, size_t more)
{
    struct bytes bigger = {.n = b->n, .room = b->room ? b->room : 256};

    if (b->data && more <= b->room - b->n)
        return 0;
    while (more > bigger.room - bigger.n)
        bigger.room *= 2;
    if (!(bigger.data = k3_try_alloc(bigger.room, 1)))
        return -1;
    if (b->n)
        memcpy(bigger.data, b->data, b->n);
    bytes_erase(b);
    *b = bigger;
    return 0;
}

static void bytes_add(struct bytes *b, const void *data, size_t n)
{
    if (n)
        memcpy((char *)b->data + b->n, data, n);
    b->n += n;
}

static const struct piece *piece_at(const struct answer *a, size_t i)
{
    return (const struct piece *)a->pieces.data + i;
}

struct answer *answer_create(void)
{
    return k3_zalloc(sizeof(struct answer));
}

void answer_destroy(struct answer *a)
{
    int saved = errno;

    if (!a)
        return;
    for (size_t i = 0; i < answer_pieces(a); i++)
        free(piece_at(a, i)->tn);
    bytes_erase(&a->ids);
    bytes_erase(&a->txt);
    bytes_erase(&a->pieces);
    free(a);
    errno = saved;
}

int answer_append(struct answer *a, const struct message_delta *d, struct k3_error *err)
{
    struct piece p = {
        .id = (uint32_t)answer_tokens(a),
        .ids = (uint32_t)d->ids.n,
        .txt = (uint32_t)a->txt.n,
        .txts = (uint32_t)d->txt.len,
        .ch = d->ch,
        .ti = d->ti,
    };

    if (d->off != p.id) {
        errno = EPROTO;
        return k3_errorf(err, "a delta begins at token %" PRIu64 ", the answer has %u", d->off, p.id);
    }
    if (d->ids.n > (size_t)ANSWER_TOKENS - p.id || d->txt.len > ANSWER_TEXT - a->txt.n ||
        answer_pieces(a) == ANSWER_PIECES) {
        errno = EFBIG;
        return k3_errorf(err, "the answer passes %d tokens or %d MiB of text", ANSWER_TOKENS, ANSWER_TEXT >> 20);
    }
    if (bytes_reserve(&a->ids, d->ids.n * sizeof(uint32_t)) < 0 || bytes_reserve(&a->txt, d->txt.len) < 0 ||
        bytes_reserve(&a->pieces, sizeof p) < 0)
        return k3_errorf(err, "no memory for an answer of more than %u tokens", p.id);

    p.tn = d->tn ? k3_strdup(d->tn) : NULL;
    bytes_add(&a->ids, d->ids.v, d->ids.n * sizeof(uint32_t));
    bytes_add(&a->txt, d->txt.data, d->txt.len);
    bytes_add(&a->pieces, &p, sizeof p);
    return 0;
}

const uint32_t *answer_ids(const struct answer *a, size_t *n)
{
    *n = answer_tokens(a);
    return a->ids.data;
}

size_t answer_tokens(const struct answer *a)
{
    return a->ids.n / sizeof(uint32_t);
}

size_t answer_pieces(const struct answer *a)
{
    return a->pieces.n / sizeof(struct piece);
}

size_t answer_bytes_from(const struct answer *a, size_t piece)
{
    if (piece >= answer_pieces(a))
        return 0;
    return a->ids.n - piece_at(a, piece)->id * sizeof(uint32_t) + a->txt.n - piece_at(a, piece)->txt;
}

size_t answer_bytes(const struct answer *a)
{
    return a->ids.n + a->txt.n + a->pieces.n;
}

void answer_piece(const struct answer *a, size_t piece, struct message_delta *d)
{
    const struct piece *p = piece_at(a, piece);

    *d = (struct message_delta){
        .off = p->id,
        .ch = p->ch,
        .ids = {p->ids ? (uint32_t *)a->ids.data + p->id : NULL, p->ids},
        .txt = {p->txts ? (char *)a->txt.data + p->txt : NULL, p->txts},
        .ti = p->ti,
        .tn = p->tn,
    };
}

/* The first piece that ends behind `tokens`.  One without ids at that place belongs to a token that is already there,
 * but whether its text arrived the reader's count cannot say: it is sent again rather than lost. */
size_t answer_find(const struct answer *a, uint64_t tokens)
{
    size_t low = 0, high = answer_pieces(a);

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const struct piece *p = piece_at(a, mid);

        if ((uint64_t)p->id + p->ids > tokens || (p->id == tokens && !p->ids))
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}
