/* mla_expand.c - attention with keys and values expanded from the latents (SPEC 4.5 steps 3 and 4)
 *
 *   [kn_s | v_s] = [UK; UV] c_s;  score_s = scale (qn . kn_s + qp . kp_s);  p = softmax(score);  o = sum_s p_s v_s
 *
 * Positions go in spans.  In turns the workers expand the span for up to HEADS heads, shared by output, and then lead
 * up to ROWS rows through it, shared by head and rows, QUERIES at a time (attend.h); what a query has come to waits in
 * o and in the stream's shared memory for the next span.  Spans change no order of sums. */
#include <math.h>

#include "kernels/cpu/attend.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/mla.h"

enum { HEADS = 32, SPAN = 3 * ATTEND_BLOCK, ROWS = 1024, QUERIES = ATTEND_QUERIES };

/* One head's key and value of one position: a key's parts lie in another order than a query's. */
struct expanded {
    float pe[K3_ROPE_DIM], nope[K3_NOPE_DIM], v[K3_V_DIM];
};

struct progress {
    float max, sum;
};

struct shared {
    struct expanded kv[HEADS][SPAN];
    struct progress progress[HEADS][ROWS];
};
_Static_assert(sizeof(struct shared) <= CPU_SHARED_FLOATS * sizeof(float), "a span fits the shared memory");
_Static_assert(CPU_TILE_ROWS - SPAN >= 0, "a span's latents are one tile of a product");

struct scratch {
    float q[QUERIES][K3_QK_DIM], p[QUERIES][ATTEND_BLOCK];
};
_Static_assert(sizeof(struct scratch) <= CPU_OWN_FLOATS * sizeof(float), "the queries fit a worker's scratch");

struct turn {
    const struct mla_attend_args *a;
    struct shared *shared;
    int i;       /* sequence */
    int64_t row; /* the first of the rows, counted from the sequence's first in this step */
    int rows, head, heads;
    int64_t pos;   /* the span's first position */
    int positions; /* of the span */
};

/* Outputs [o0, o1) of one head: of its nope and then of its v. */
static void expand_head(struct cpu_worker *w, const struct turn *t, int head, int64_t o0, int64_t o1)
{
    struct k3_tensor weights = *t->a->kv_b;
    const float *x[SPAN];
    float *y[SPAN];
    weights.data = (void *)mla_head_weights(t->a, t->head + head);
    weights.rows = HEAD_ROWS;
    for (int p = 0; p < t->positions; p++) {
        struct expanded *e = &t->shared->kv[head][p];
        x[p] = cpu_latent(t->a->cache, t->a->batch, t->i, t->pos + p);
        y[p] = e->nope;
        memset(y[p] + o0, 0, (size_t)(o1 - o0) * sizeof *y[p]);
        if (o0 == 0)
            memcpy(e->pe, x[p] + K3_LATENT_DIM, sizeof e->pe);
    }
    CPU(matmul)(w, t->positions, x, &weights, o0, o1, y, NULL);
}

static void expand(struct cpu_worker *w, const void *arg)
{
    const struct turn *t = arg;
    int64_t begin, end, next;
    cpu_share(w, (int64_t)t->heads * HEAD_ROWS, 1, &begin, &end);
    for (int64_t o = begin; o < end; o = next) {
        int64_t head = o / HEAD_ROWS, first = head * HEAD_ROWS;
        next = first + HEAD_ROWS < end ? first + HEAD_ROWS : end;
        expand_head(w, t, (int)head, o - first, next - first);
    }
}

/* Rows [row, row + n) of the turn's, one head. */
static void lead(struct cpu_worker *w, const struct turn *t, int head, int row, int n)
{
    const struct mla_attend_args *a = t->a;
    const struct attend_form form = {.key = K3_QK_DIM,
                                     .value = K3_V_DIM,
                                     .value_at = offsetof(struct expanded, v) / sizeof(float),
                                     .scale = a->scale};
    struct scratch *s = (struct scratch *)w->own;
    struct attend_query walk[QUERIES];
    struct progress *progress = t->shared->progress[head] + row;
    int64_t end = t->pos + t->positions, last = 0;
    for (int j = 0; j < n; j++) {
        int64_t at = t->row + row + j, r = a->batch->begin[t->i] + at;
        const float *q = cpu_row(a->q, r) + (t->head + head) * K3_QK_DIM;
        float *o = cpu_row(a->o, r) + (t->head + head) * K3_V_DIM;
        memcpy(s->q[j], q + K3_NOPE_DIM, K3_ROPE_DIM * sizeof *q);
        memcpy(s->q[j] + K3_ROPE_DIM, q, K3_NOPE_DIM * sizeof *q);
        if (t->pos == 0) {
            progress[j] = (struct progress){-INFINITY, 0};
            memset(o, 0, K3_V_DIM * sizeof *o);
        }
        last = a->batch->pos[t->i] + at + 1;
        walk[j] = (struct attend_query){s->q[j], o, last, progress[j].max, progress[j].sum};
    }
    for (int64_t pos = t->pos; pos < end && pos < last; pos += ATTEND_BLOCK) {
        const float *key[ATTEND_BLOCK];
        int64_t seen = (last < end ? last : end) - pos;
        int count = seen < ATTEND_BLOCK ? (int)seen : ATTEND_BLOCK;
        for (int p = 0; p < count; p++)
            key[p] = t->shared->kv[head][pos - t->pos + p].pe;
        CPU(attend_block)(&form, walk, n, pos, count, key, s->p);
    }
    for (int j = 0; j < n; j++) {
        progress[j] = (struct progress){walk[j].max, walk[j].sum};
        if (walk[j].positions > t->pos && walk[j].positions <= end)
            CPU(attend_end)(&form, &walk[j], 1);
    }
}

static void lead_all(struct cpu_worker *w, const void *arg)
{
    const struct turn *t = arg;
    int64_t tiles = (t->rows + QUERIES - 1) / QUERIES, begin, end;
    cpu_share(w, tiles * t->heads, 1, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        int row = (int)(item % tiles) * QUERIES;
        lead(w, t, (int)(item / tiles), row, t->rows - row < QUERIES ? t->rows - row : QUERIES);
    }
}

static int least(int64_t a, int64_t b)
{
    return (int)(a < b ? a : b);
}

void CPU(mla_attend_expanded)(const struct mla_attend_args *a, int i, struct k3_stream *s)
{
    struct turn t = {.a = a, .shared = (struct shared *)((struct cpu_stream *)s)->shared, .i = i};
    int rows = kern_expanded_rows(a->batch, i);
    for (t.row = 0; t.row < rows; t.row += t.rows) {
        t.rows = least(rows - t.row, ROWS);
        int64_t last = a->batch->pos[i] + t.row + t.rows;
        for (t.head = 0; t.head < a->heads; t.head += t.heads) {
            t.heads = least(a->heads - t.head, HEADS);
            for (t.pos = 0; t.pos < last; t.pos += t.positions) {
                t.positions = least(last - t.pos, SPAN);
                CPU(run)(s, (int64_t)t.heads * HEAD_ROWS / 8, expand, &t);
                CPU(run)(s, (int64_t)t.heads * t.rows, lead_all, &t);
            }
        }
    }
}
