#include "queue/answer.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"

/* Where a piece begins in each of the four, and where in its choice; it ends where the next one begins. */
struct piece {
    uint32_t id, txt, part, logprob;
    uint32_t choice, off;
};

struct part {
    enum delta_channel ch;
    uint32_t ti, name, txt; /* bytes of the tool's name with its NUL (0: none), and of text behind it */
};

/* Bytes that grow without realloc(), which may leave a copy of the old ones behind. */
struct bytes {
    void *data;
    size_t n, room;
};

struct answer {
    uint32_t choices, *length; /* [choices]: tokens of each */
    struct bytes ids;          /* uint32_t each */
    struct bytes txt;
    struct bytes parts;                      /* struct part each */
    struct bytes lpi, lpv;                   /* log-probabilities: uint32_t and float each */
    struct bytes pieces;                     /* struct piece each */
    struct message_part read[MESSAGE_PARTS]; /* of the piece that was asked for last */
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

/* For the number of pieces: where the next one will begin. */
static struct piece piece_at(const struct answer *a, size_t i)
{
    if (i < answer_pieces(a))
        return ((const struct piece *)a->pieces.data)[i];
    return (struct piece){.id = (uint32_t)answer_tokens(a),
                          .txt = (uint32_t)a->txt.n,
                          .part = (uint32_t)(a->parts.n / sizeof(struct part)),
                          .logprob = (uint32_t)(a->lpi.n / sizeof(uint32_t))};
}

struct answer *answer_create(uint32_t choices)
{
    struct answer *a = k3_zalloc(sizeof *a);

    a->choices = choices;
    a->length = k3_calloc(choices, sizeof *a->length);
    return a;
}

void answer_destroy(struct answer *a)
{
    int saved = errno;

    if (!a)
        return;
    bytes_erase(&a->ids);
    bytes_erase(&a->txt);
    bytes_erase(&a->parts);
    bytes_erase(&a->lpi);
    bytes_erase(&a->lpv);
    bytes_erase(&a->pieces);
    free(a->length);
    free(a);
    errno = saved;
}

static struct part part_of(const struct message_part *p)
{
    return (struct part){p->ch, p->ti, p->tn ? (uint32_t)strlen(p->tn) + 1 : 0, (uint32_t)p->txt.len};
}

int answer_append(struct answer *a, const struct message_delta *d, struct k3_error *err)
{
    struct piece piece = piece_at(a, answer_pieces(a));
    size_t txt = 0;

    assert(d->ids.n > 0 && d->parts.n <= MESSAGE_PARTS); /* by message_decode() */
    if (d->c >= a->choices) {
        errno = EPROTO;
        return k3_errorf(err, "a delta of choice %u, there are %u", d->c, a->choices);
    }
    piece.choice = d->c;
    piece.off = a->length[d->c];
    if (d->off != piece.off) {
        errno = EPROTO;
        return k3_errorf(err, "a delta begins at token %" PRIu64 ", the answer has %u", d->off, piece.off);
    }
    for (size_t i = 0; i < d->parts.n; i++) {
        struct part part = part_of(&d->parts.v[i]);
        txt += part.name + part.txt;
    }
    if (d->ids.n > ANSWER_TOKENS - piece.id || txt > ANSWER_TEXT - piece.txt ||
        d->parts.n > ANSWER_PARTS - piece.part || d->lpi.n > ANSWER_LOGPROBS - piece.logprob) {
        errno = EFBIG;
        return k3_errorf(err, "the answer passes %d tokens, %d MiB of text, %d parts or %d log-probabilities",
                         ANSWER_TOKENS, ANSWER_TEXT >> 20, ANSWER_PARTS, ANSWER_LOGPROBS);
    }
    if (bytes_reserve(&a->ids, d->ids.n * sizeof(uint32_t)) < 0 || bytes_reserve(&a->txt, txt) < 0 ||
        bytes_reserve(&a->parts, d->parts.n * sizeof(struct part)) < 0 ||
        bytes_reserve(&a->lpi, d->lpi.n * sizeof(uint32_t)) < 0 ||
        bytes_reserve(&a->lpv, d->lpv.n * sizeof(float)) < 0 || bytes_reserve(&a->pieces, sizeof piece) < 0)
        return k3_errorf(err, "no memory for an answer of more than %u tokens", piece.id);

    bytes_add(&a->ids, d->ids.v, d->ids.n * sizeof(uint32_t));
    for (size_t i = 0; i < d->parts.n; i++) {
        const struct message_part *p = &d->parts.v[i];
        struct part part = part_of(p);
        bytes_add(&a->parts, &part, sizeof part);
        bytes_add(&a->txt, p->tn, part.name);
        bytes_add(&a->txt, p->txt.data, part.txt);
    }
    bytes_add(&a->lpi, d->lpi.v, d->lpi.n * sizeof(uint32_t));
    bytes_add(&a->lpv, d->lpv.v, d->lpv.n * sizeof(float));
    bytes_add(&a->pieces, &piece, sizeof piece);
    a->length[d->c] += (uint32_t)d->ids.n;
    return 0;
}

const uint32_t *answer_ids(const struct answer *a, size_t *n)
{
    *n = answer_tokens(a);
    return a->ids.data;
}

void answer_sorted_ids(const struct answer *a, uint32_t *ids)
{
    const uint32_t *id = a->ids.data;
    size_t begin[MESSAGE_CHOICES] = {0};

    for (uint32_t c = 1; c < a->choices; c++)
        begin[c] = begin[c - 1] + a->length[c - 1];
    for (size_t i = 0; i < answer_pieces(a); i++) {
        struct piece p = piece_at(a, i), next = piece_at(a, i + 1);
        memcpy(ids + begin[p.choice] + p.off, id + p.id, (next.id - p.id) * sizeof *id);
    }
}

uint32_t answer_choices(const struct answer *a)
{
    return a->choices;
}

const uint32_t *answer_lengths(const struct answer *a)
{
    return a->length;
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
    struct piece p = piece_at(a, piece);

    return a->ids.n - p.id * sizeof(uint32_t) + a->txt.n - p.txt + a->lpi.n - p.logprob * sizeof(uint32_t) + a->lpv.n -
           p.logprob * sizeof(float);
}

size_t answer_bytes(const struct answer *a)
{
    return a->ids.n + a->txt.n + a->parts.n + a->lpi.n + a->lpv.n + a->pieces.n;
}

void answer_piece(struct answer *a, size_t piece, struct message_delta *d)
{
    struct piece p = piece_at(a, piece), next = piece_at(a, piece + 1);
    const struct part *part = (const struct part *)a->parts.data + p.part;
    char *txt = (char *)a->txt.data + p.txt;

    *d = (struct message_delta){.c = p.choice,
                                .off = p.off,
                                .ids = {(uint32_t *)a->ids.data + p.id, next.id - p.id},
                                .parts = {a->read, next.part - p.part}};
    if (next.logprob > p.logprob) {
        d->lpi = (struct message_u32s){(uint32_t *)a->lpi.data + p.logprob, next.logprob - p.logprob};
        d->lpv = (struct message_f32s){(float *)a->lpv.data + p.logprob, next.logprob - p.logprob};
    }
    for (size_t i = 0; i < d->parts.n; i++, part++) {
        a->read[i] = (struct message_part){
            .ch = part->ch, .ti = part->ti, .tn = part->name ? txt : NULL, .txt = {txt + part->name, part->txt}};
        txt += part->name + part->txt;
    }
}

static bool has_piece(const struct answer *a, size_t i, const uint64_t *have)
{
    struct piece p = piece_at(a, i);

    return p.off + (piece_at(a, i + 1).id - p.id) <= have[p.choice];
}

/* The first piece that ends behind what he has.  Of one choice there is nothing that he has behind it. */
size_t answer_find(const struct answer *a, const uint64_t *have)
{
    size_t low = 0, high = answer_pieces(a);

    for (; a->choices > 1 && low < high && has_piece(a, low, have); low++)
        ;
    while (a->choices == 1 && low < high) {
        size_t mid = low + (high - low) / 2;

        if (has_piece(a, mid, have))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}
