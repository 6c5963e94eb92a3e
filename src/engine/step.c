#include "engine/step.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/alloc.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"

struct order *order_create(enum order_kind kind)
{
    struct order *o = k3_zalloc(sizeof *o);

    o->kind = kind;
    return o;
}

void order_free(struct mail *m)
{
    struct order *o = (struct order *)m;

    sequence_destroy(o->sequence);
    free(o);
}

/* --- the watchdog ------------------------------------------------------------------------------------------------- */

static void stalled(int signo)
{
    static const char line[] = "k3served: another rank has been silent for too long: this one ends\n";
    ssize_t n = write(STDERR_FILENO, line, sizeof line - 1);

    (void)n, (void)signo;
    _exit(EXIT_FAILURE);
}

static void watch(void)
{
    struct sigaction act = {.sa_handler = stalled};

    sigaction(SIGALRM, &act, NULL);
    alarm(STEP_STALL_S);
}

static void unwatch(void)
{
    alarm(0);
}

/* --- every rank -----------------------------------------------------------------------------------------------------
 */

/* Run the plan that has been broadcast. */
static int run(struct step *st, const float **logits, struct forward_step *step, struct k3_error *err)
{
    if (plan_apply(st->plan, step, err) < 0)
        return -1;
    return forward_step(st->forward, step, logits, err);
}

/* Broadcast the leader's plan.  How to wait for it follows from the plan before: all ranks know the same. */
static int pass_on(struct step *st, enum plan_kind before, struct k3_error *err)
{
    size_t bytes;
    void *message = plan_message(st->plan, &bytes);
    int rc = before == PLAN_IDLE ? comm_broadcast_idle(st->comm, message, bytes, 0, err)
                                 : comm_broadcast(st->comm, message, bytes, 0, err);

    alarm(STEP_STALL_S);
    return rc;
}

int step_follow(struct step *st, struct k3_error *err)
{
    enum plan_kind kind = PLAN_IDLE;
    struct forward_step step;
    const float *logits;
    int rc = 0;

    watch();
    while (rc == 0 && kind != PLAN_STOP) {
        if ((rc = pass_on(st, kind, err)) < 0)
            break;
        kind = plan_kind(st->plan);
        if (kind == PLAN_STEP)
            rc = run(st, &logits, &step, err);
    }
    unwatch();
    return rc;
}

/* --- the leader -----------------------------------------------------------------------------------------------------
 */

struct lead {
    struct step *st;
    struct scheduler *scheduler;
    struct sampler *sampler;
    enum plan_kind sent; /* the last plan */
    int stop;
};

/* Takes r. */
static void post(struct lead *l, const struct sequence *q, struct report *r)
{
    r->message.head.id = *sequence_id(q);
    r->lease = sequence_lease(q);
    mailbox_post(l->st->reports, &r->mail);
}

static void report(struct lead *l, const struct sequence *q, const struct message *m)
{
    struct report *r = k3_zalloc(sizeof *r);

    r->message = *m;
    post(l, q, r);
}

struct emitter {
    struct lead *lead;
    const struct sequence *sequence;
    struct logprob logprob[1 + SAMPLING_LOGPROBS]; /* of the token that goes out */
    int32_t logprobs;                              /* 0: none were asked for */
};

static void report_delta(void *arg, const struct message_delta *delta)
{
    struct emitter *e = arg;
    struct message_delta whole = *delta;
    uint32_t id[1 + SAMPLING_LOGPROBS];
    float value[1 + SAMPLING_LOGPROBS];

    for (int32_t i = 0; i < e->logprobs; i++) {
        id[i] = (uint32_t)e->logprob[i].id;
        value[i] = e->logprob[i].value;
    }
    whole.lpi = (struct message_u32s){id, (size_t)e->logprobs};
    whole.lpv = (struct message_f32s){value, (size_t)e->logprobs};
    whole.c = (uint32_t)sequence_choice(e->sequence);
    post(e->lead, e->sequence, report_of_delta(e->lead->st->deltas, &whole));
}

static const enum done_why done_whys_of[] = {
    [END_STOP] = DONE_STOP, [END_LENGTH] = DONE_LENGTH, [END_CANCELLED] = DONE_CANCELLED, [END_FAILED] = DONE_FAILED};

static double longer(double a, double b)
{
    return a > b ? a : b;
}

/* How one choice ended, into the request's report. */
static void add_choice(struct message_done *done, const struct sequence *q)
{
    const char *sentence = sequence_sentence(q);

    if (!done->msg && sentence)
        done->msg = k3_strdup(sentence);
    if ((uint32_t)sequence_cached_tokens(q) > done->cached)
        done->cached = (uint32_t)sequence_cached_tokens(q);
    done->ctok += (uint32_t)sequence_answer_tokens(q);
    done->prompt_s = longer(done->prompt_s, sequence_prefill_s(q));
    done->gen_s = longer(done->gen_s, sequence_decode_s(q));
    if (done->cs.v)
        done->cs.v[done->cs.n++] =
            (struct message_choice){done_whys_of[sequence_end(q)], (uint32_t)sequence_answer_tokens(q)};
}

static void report_end(struct lead *l, const struct sequence *first)
{
    enum sequence_end end = sequence_common_end(first);
    struct message m;

    if (end == END_DROPPED)
        return;
    if (end == END_RETURNED) {
        m = message_of(WIRE_RETURNED, NULL);
        report(l, first, &m);
        return;
    }
    m = message_of(WIRE_DONE, NULL);
    m.done.why = done_whys_of[end];
    m.done.ptok = (uint32_t)sequence_prompt_tokens(first);
    if (sequence_next(first) && (end == END_STOP || end == END_LENGTH))
        m.done.cs.v = k3_calloc(MESSAGE_CHOICES, sizeof *m.done.cs.v);
    for (const struct sequence *q = first; q; q = sequence_next(q))
        add_choice(&m.done, q);
    report(l, first, &m);
}

static void end_one(struct lead *l, uint64_t lease, enum sequence_end end)
{
    struct sequence *first = scheduler_find(l->scheduler, lease);

    if (first) /* else it has ended by itself, and its report is on the way */
        sequence_finish_all(first, end, NULL);
}

static void obey(struct lead *l, struct order *o)
{
    switch (o->kind) {
    case ORDER_RUN:
        scheduler_add(l->scheduler, o->sequence);
        o->sequence = NULL;
        break;
    case ORDER_CANCEL:
        end_one(l, o->lease, END_CANCELLED);
        break;
    case ORDER_DROP:
        end_one(l, o->lease, END_DROPPED);
        break;
    case ORDER_RETURN_WAITING:
        scheduler_finish_waiting(l->scheduler, END_RETURNED);
        break;
    case ORDER_RETURN_ALL:
        scheduler_finish_all(l->scheduler, END_RETURNED);
        break;
    case ORDER_STOP:
        l->stop = 1;
        break;
    }
}

static void take_orders(struct lead *l)
{
    for (struct mail *m; (m = mailbox_take(l->st->orders)); order_free(m))
        obey(l, (struct order *)m);
    for (struct sequence *q; (q = scheduler_reap(l->scheduler)); sequence_destroy(q))
        report_end(l, q);
}

static int tell(struct lead *l, struct k3_error *err)
{
    enum plan_kind before = l->sent;

    l->sent = plan_kind(l->st->plan);
    return pass_on(l->st, before, err);
}

static void wait_for_orders(struct lead *l)
{
    struct pollfd p = {.fd = mailbox_fd(l->st->orders), .events = POLLIN};

    poll(&p, 1, STEP_TICK_S * 1000);
}

/* The next token of the sequence whose logits these are. */
static void sample_one(struct lead *l, struct sequence *q, const float *logits)
{
    const struct sampling *s = sequence_sampling(q);
    struct sampler_text text = sequence_text(q);
    struct emitter e = {.lead = l, .sequence = q};
    struct k3_error err;
    int32_t token = sampler_pick(l->sampler, s, logits, &text, &err);

    if (token < 0) {
        sequence_finish_all(sequence_first(q), END_FAILED, err.text);
        return;
    }
    if (s->logprobs > 0) {
        e.logprobs = 1 + s->logprobs;
        sampler_logprobs(l->sampler, logits, token, s->logprobs, e.logprob);
    }
    sequence_append(q, token, report_delta, &e);
}

static void sample(struct lead *l, const float *logits)
{
    int32_t outputs = scheduler_outputs(l->scheduler), row;

    for (int32_t i = 0; i < outputs; i++) {
        struct sequence *q = scheduler_output(l->scheduler, i, &row);
        if (sequence_state(q) != SEQUENCE_ENDED) /* with another choice that failed */
            sample_one(l, q, logits + (size_t)row * (size_t)l->st->vocab);
    }
}

static int step(struct lead *l, struct k3_error *err)
{
    struct forward_step fs;
    const float *logits;

    scheduler_plan(l->scheduler, l->st->plan);
    if (tell(l, err) < 0)
        return -1;
    if (l->sent == PLAN_IDLE)
        return 0;
    if (run(l->st, &logits, &fs, err) < 0)
        return -1;
    l->st->steps++;
    scheduler_ran(l->scheduler);
    sample(l, logits);
    return 0;
}

/* Nothing is allocated between two tokens. */
static int step_without_alloc(struct lead *l, struct k3_error *err)
{
    alloc_forbid(true);
    int rc = step(l, err);
    alloc_forbid(false);
    return rc;
}

int step_lead(struct step *st, struct k3_error *err)
{
    struct lead l = {
        .st = st,
        .scheduler = scheduler_create(st->cache, st->prefix, st->slots, st->chunk),
        .sampler = sampler_create(st->vocab),
        .sent = PLAN_IDLE,
    };
    int rc = 0;

    watch();
    for (take_orders(&l); rc == 0 && !l.stop; take_orders(&l)) {
        rc = step_without_alloc(&l, err);
        if (rc == 0 && l.sent == PLAN_IDLE)
            wait_for_orders(&l);
    }
    if (rc == 0) {
        plan_begin(st->plan, PLAN_STOP);
        rc = tell(&l, err);
    }
    unwatch();
    sampler_destroy(l.sampler);
    scheduler_destroy(l.scheduler);
    return rc;
}
