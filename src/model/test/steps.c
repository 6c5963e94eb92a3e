/* steps.c - however tokens are cut into steps and put together with others, a sequence gets the same logits
 *
 *     steps MODEL BACKEND ID,... [MOST [LAYOUT]]    on one process, or on the ranks that mpirun starts
 *
 * Rank 0 prints "ok TITLE" or "not ok TITLE" a check. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "common/alloc.h"
#include "model/forward.h"
#include "model/layout.h"

enum { ROWS = 256, SLOTS = 4, PAGES = 40, PAGE_TOKENS = 16, SEQUENCES = 3, SEQUENCE_PAGES = 13 };

static struct k3_error err;
static struct comm *comm;
static struct k3_config config;
static struct forward *forward;
static int32_t token[ROWS];
static int tokens;
static double most = 1e-4; /* relative difference that is allowed where sums may be taken in another order */

static void stop(void)
{
    fprintf(stderr, "steps: %s\n", err.text);
    if (comm)
        comm_abort(comm, 2);
    exit(2);
}

static float *rows_of_logits(int rows)
{
    return k3_calloc((size_t)rows * (size_t)config.vocab, sizeof(float));
}

/* The test's tokens from `skip` on, in this slot and these pages. */
struct sequence {
    int skip, slot;
    int32_t page[SEQUENCE_PAGES];
    int64_t pos;
};

/* Pages in an order that nothing may rely on. */
static struct sequence sequence(int n, int slot)
{
    struct sequence s = {.skip = 7 * n, .slot = slot};

    for (int i = 0; i < SEQUENCE_PAGES; i++)
        s.page[i] = (17 * (n * SEQUENCE_PAGES + i) + 5) % PAGES;
    return s;
}

/* One step: rows[i] more tokens of sequence i.  Copies the logits of all rows, unless logits is NULL. */
static void feed(struct sequence *s, const int *rows, int n, float *logits)
{
    int32_t begin[SEQUENCES + 1] = {0}, slot[SEQUENCES], pages[SEQUENCES * SEQUENCE_PAGES], ids[ROWS], output[ROWS];
    int64_t pos[SEQUENCES];
    const float *got;

    for (int i = 0; i < n; i++) {
        begin[i + 1] = begin[i] + rows[i];
        slot[i] = s[i].slot;
        pos[i] = s[i].pos;
        memcpy(pages + i * SEQUENCE_PAGES, s[i].page, sizeof s[i].page);
        for (int t = 0; t < rows[i]; t++) {
            ids[begin[i] + t] = token[s[i].skip + s[i].pos + t];
            output[begin[i] + t] = begin[i] + t;
        }
        s[i].pos += rows[i];
    }
    struct forward_step step = {
        .batch = {.rows = begin[n],
                  .seqs = n,
                  .begin = begin,
                  .slot = slot,
                  .pos = pos,
                  .pages = pages,
                  .page_stride = SEQUENCE_PAGES},
        .token = ids,
        .output = output,
        .outputs = logits ? begin[n] : 0,
    };
    if (forward_step(forward, &step, &got, &err) < 0)
        stop();
    if (logits && got) /* rank 0 has them in every layout */
        memcpy(logits, got, (size_t)begin[n] * (size_t)config.vocab * sizeof *logits);
}

static double relative(const float *got, const float *want, int rows)
{
    double difference = 0, norm = 0;

    for (int64_t i = 0; i < (int64_t)rows * config.vocab; i++) {
        difference += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        norm += (double)want[i] * want[i];
    }
    return sqrt(difference / norm);
}

static void report(int right, const char *title)
{
    if (comm_rank(comm) == 0)
        printf("%s %s\n", right ? "ok" : "not ok", title);
}

static void report_small(double number, const char *title)
{
    char with_number[160];

    snprintf(with_number, sizeof with_number, "%s (%.2g)", title, number);
    report(number < most, with_number);
}

/* prefill(n) + decode(m) = prefill(n + m) */
static void decodes_after_prefill(const float *whole)
{
    static const int prefills[] = {1, 3, 63, 64, 65, 199};
    const int one = 1;

    for (size_t i = 0; i < sizeof prefills / sizeof *prefills; i++) {
        struct sequence s = sequence(0, 2);
        float *logits = rows_of_logits(tokens);
        char title[80];
        feed(&s, &prefills[i], 1, logits);
        while (s.pos < tokens)
            feed(&s, &one, 1, logits + s.pos * config.vocab);
        snprintf(title, sizeof title, "a prefill of %d and %d times one token", prefills[i], tokens - prefills[i]);
        report_small(relative(logits, whole, tokens), title);
        free(logits);
    }
}

static void unwanted_logits_change_nothing(const float *whole)
{
    struct sequence s = sequence(0, 1);
    const int rows[2] = {tokens - 1, 1};
    float *last = rows_of_logits(1);

    feed(&s, &rows[0], 1, NULL);
    feed(&s, &rows[1], 1, last);
    report_small(relative(last, whole + (int64_t)(tokens - 1) * config.vocab, 1), "a prefill without logits");
    free(last);
}

/* Three sequences in each step, long and short pieces side by side, against each alone in the same pieces. */
static void mates_change_nothing(void)
{
    static const int rows[4][SEQUENCES] = {{1, 40, 9}, {1, 1, 30}, {17, 1, 1}, {1, 1, 1}};
    struct sequence s[SEQUENCES] = {sequence(0, 3), sequence(1, 0), sequence(2, 2)};
    float *mixed = rows_of_logits(ROWS), *own[SEQUENCES];
    int64_t pos[SEQUENCES] = {0};
    int same = 1;

    /* Alone first, which also leaves states in the slots and pages that the mixed run has to ignore. */
    for (int i = 0; i < SEQUENCES; i++) {
        struct sequence one = s[i];
        own[i] = rows_of_logits(ROWS);
        for (int step = 0; step < 4; step++)
            feed(&one, &rows[step][i], 1, own[i] + one.pos * config.vocab);
    }
    for (int step = 0; step < 4; step++) {
        const float *at = mixed;
        feed(s, rows[step], SEQUENCES, mixed);
        for (int i = 0; i < SEQUENCES; i++) {
            int64_t count = (int64_t)rows[step][i] * config.vocab;
            same &= memcmp(at, own[i] + pos[i] * config.vocab, (size_t)count * sizeof *at) == 0;
            at += count;
            pos[i] += rows[step][i];
        }
    }
    report(same, "three sequences in a step are bit for bit what each is alone");
    for (int i = 0; i < SEQUENCES; i++)
        free(own[i]);
    free(mixed);
}

static int refused(const struct forward_step *step, const char *word)
{
    const float *logits;

    return forward_step(forward, step, &logits, &err) < 0 && logits == NULL && strstr(err.text, word) != NULL;
}

static void bad_plans_are_refused(void)
{
    const int32_t begin[2] = {0, 1}, slot = 0, page[2] = {0, 1}, output = 0, id = 5;
    const int64_t pos = 0;
    const struct forward_step good = {
        .batch = {.rows = 1, .seqs = 1, .begin = begin, .slot = &slot, .pos = &pos, .pages = page, .page_stride = 2},
        .token = &id,
        .output = &output,
        .outputs = 1,
    };
    const int32_t bad_begin[2] = {0, 2}, bad_slot = SLOTS, bad_page[2] = {PAGES, 1}, bad_output = 1;
    const int32_t bad_id = config.vocab;
    const int64_t far = 2 * PAGE_TOKENS, before = -1;
    struct forward_step s;
    const float *logits;
    int right = forward_step(forward, &good, &logits, &err) == 0 && logits;

    s = good, s.batch.rows = 0, right &= refused(&s, "rows");
    s = good, s.batch.rows = ROWS + 1, right &= refused(&s, "rows");
    s = good, s.outputs = ROWS + 1, right &= refused(&s, "outputs");
    s = good, s.batch.begin = bad_begin, right &= refused(&s, "sequences");
    s = good, s.batch.slot = &bad_slot, right &= refused(&s, "slot");
    s = good, s.batch.pages = bad_page, right &= refused(&s, "pages");
    s = good, s.batch.pos = &far, right &= refused(&s, "pages");
    s = good, s.batch.pos = &before, right &= refused(&s, "sequence 0");
    s = good, s.output = &bad_output, right &= refused(&s, "row 1");
    s = good, s.token = &bad_id, right &= refused(&s, "vocabulary");
    report(right, "plans that reach outside are refused");
}

static void read_tokens(char *list)
{
    for (char *id = strtok(list, ","); id && tokens < ROWS; id = strtok(NULL, ","))
        token[tokens++] = atoi(id);
}

int main(int argc, char **argv)
{
    struct forward_limits limits = {
        .rows = ROWS, .outputs = ROWS, .slots = SLOTS, .pages = PAGES, .page_tokens = PAGE_TOKENS, .slot_pages = PAGES};
    struct layout layout;

    if (argc < 4 || argc > 6) {
        fprintf(stderr, "steps MODEL BACKEND ID,... [MOST [LAYOUT]]\n");
        return 2;
    }
    read_tokens(argv[3]);
    if (argc > 4)
        most = atof(argv[4]);
    comm = comm_create(&err);
    if (!comm || k3_config_load(argv[1], &config, &err) < 0)
        stop();
    if (layout_of_job(argc > 5 ? argv[5] : "", comm_size(comm), &config, &layout, &err) < 0 ||
        comm_divide(comm, layout.pp, &err) < 0)
        stop();
    struct shard shard = layout_shard(&layout, comm_rank(comm));
    struct k3_stream *stream = kern_stream_create(argv[2], 1);
    if (!stream)
        stop();
    limits.latents = kern_latent_dtype(stream);
    struct weights *weights = weights_load(argv[1], &config, &shard, stream, NULL, &err);
    if (!weights || comm_attach(comm, stream, &err) < 0)
        stop();
    forward = forward_create(&config, &shard, weights, comm, stream, &limits, &err);
    if (!forward)
        stop();

    struct sequence s = sequence(0, 0);
    float *whole = rows_of_logits(tokens);
    feed(&s, &tokens, 1, whole);
    decodes_after_prefill(whole);
    unwanted_logits_change_nothing(whole);
    mates_change_nothing();
    bad_plans_are_refused();

    free(whole);
    forward_destroy(forward);
    weights_destroy(weights);
    kern_stream_destroy(stream);
    comm_destroy(comm);
    return 0;
}
