/* The queue with a real socket, a real engine and a real client on it, and a clock that stands still: nobody is told,
 * and no engine is given anything, before the store has it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sodium.h>

#include "common/alloc.h"
#include "common/fault.h"
#include "common/log.h"
#include "queue/lease.h"
#include "queue/queue.h"
#include "wire/frame.h"

struct fixture {
    void *zmq, *router, *client, *engine;
    struct frame_peer client_peer, engine_peer;
    struct queue *queue;
};

/* A DEALER and the name that the ROUTER has for it. */
static void *connect_peer(struct fixture *f, struct frame_peer *peer)
{
    struct k3_error err;
    struct message m = message_of(WIRE_INFO, NULL);
    struct frame frame;
    void *dealer = frame_socket(f->zmq, ZMQ_DEALER, 0, &err);
    zmq_pollitem_t item = {.socket = f->router, .events = ZMQ_POLLIN};

    assert_int_equal(frame_connect(dealer, "inproc://queue", &err), 0);
    assert_int_equal(frame_send(dealer, NULL, &m, NULL, &err), 0);
    assert_int_equal(zmq_poll(&item, 1, 5000), 1);
    assert_int_equal(frame_recv(f->router, &frame, &err), 1);
    *peer = frame.from;
    frame_clear(&frame);
    return dealer;
}

static int setup(void **state)
{
    static struct fixture f;
    static const struct queue_options options = {.max_queued = 3,
                                                 .max_queued_per_user = 2,
                                                 .max_bytes = 1 << 20,
                                                 .max_bytes_per_user = 1 << 20,
                                                 .max_rate_per_user = 1000000,
                                                 .max_prompt_bytes = 1 << 20,
                                                 .max_prompt_tokens = 1 << 20,
                                                 .max_choices = 4,
                                                 .keep_answer_sec = 60,
                                                 .heartbeat_sec = 1,
                                                 .engine_timeout_sec = 10,
                                                 .stall_timeout_sec = 100,
                                                 .max_output = 1 << 20};
    struct k3_error err;

    f.zmq = zmq_ctx_new();
    f.router = frame_socket(f.zmq, ZMQ_ROUTER, 0, &err);
    assert_int_equal(frame_bind(f.router, "inproc://queue", &err), 0);
    f.queue = queue_create(f.router, &options, 1000);
    f.client = connect_peer(&f, &f.client_peer);
    f.engine = connect_peer(&f, &f.engine_peer);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    queue_destroy(f->queue);
    zmq_close(f->client);
    zmq_close(f->engine);
    zmq_close(f->router);
    zmq_ctx_term(f->zmq);
    return 0;
}

static struct k3_id id_of(uint8_t n)
{
    return (struct k3_id){{n}};
}

/* What came in: a type, or 0 for nothing. */
static unsigned int hear(void *dealer, struct message *m)
{
    zmq_pollitem_t item = {.socket = dealer, .events = ZMQ_POLLIN};
    struct k3_error err;
    struct frame frame;

    if (zmq_poll(&item, 1, 20) == 0)
        return 0;
    assert_int_equal(frame_recv(dealer, &frame, &err), 1);
    assert_int_equal(frame_decode(&frame, m, &err), 0);
    frame_clear(&frame);
    return m->head.type;
}

static void expect(void *dealer, unsigned int type)
{
    struct message m = {0};

    assert_int_equal(hear(dealer, &m), type);
    if (type)
        message_clear(&m);
}

static int submit_choices(struct fixture *f, uint8_t n, uid_t uid, uint32_t choices, uint32_t max, struct refusal *no)
{
    struct caller c = {.peer = &f->client_peer, .version = WIRE_VERSION, .uid = uid};
    struct k3_id id = id_of(n);
    struct message m = message_of(WIRE_SUBMIT, &id);
    int rc;

    m.submit.watch = true;
    m.submit.ask.tok.v = k3_calloc(1, sizeof(uint32_t));
    m.submit.ask.tok.n = 1;
    m.submit.ask.max = max;
    m.submit.ask.n = choices;
    rc = queue_submit(f->queue, &c, &id, &m.submit, no);
    message_clear(&m);
    return rc;
}

static int submit_as(struct fixture *f, uint8_t n, uid_t uid, uint32_t max, struct refusal *no)
{
    return submit_choices(f, n, uid, 1, max, no);
}

static void submit(struct fixture *f, uint8_t n)
{
    struct refusal no;

    assert_int_equal(submit_as(f, n, 0, 8, &no), 0);
}

static struct engine *register_engine(struct fixture *f)
{
    struct message_engine_hello hello = {.job = 7, .inc = 1};
    struct message_engine_ready ready = {.slots = 1, .ctx = 100, .credit = 1};
    struct engine *e = engines_add(f->queue->engines, &f->engine_peer, WIRE_VERSION, &hello, f->queue->now);

    engine_ready(e, &ready);
    return e;
}

static void test_accepted_only_after_the_commit(void **state)
{
    struct fixture *f = *state;

    setenv("K3_FAULT", "store-slow", 1);
    fault_init();
    register_engine(f);
    submit(f, 1);
    expect(f->client, 0);
    assert_true(queue_turn(f->queue));
    expect(f->client, 0);
    f->queue->now += 0.9;
    assert_true(queue_turn(f->queue));
    expect(f->client, 0);
    expect(f->engine, 0);
    submit(f, 1); /* again: one request, one answer */
    f->queue->now += 0.2;
    queue_turn(f->queue);
    expect(f->client, WIRE_ACCEPTED);
    expect(f->client, WIRE_STATE);
    expect(f->client, WIRE_STATE);
    expect(f->client, 0);
    expect(f->engine, WIRE_BATCH);
    expect(f->engine, 0);
    unsetenv("K3_FAULT");
    fault_init();
}

static void test_cancelled_before_the_commit(void **state)
{
    struct fixture *f = *state;
    struct k3_id id = id_of(1);
    struct refusal no;

    register_engine(f);
    submit(f, 1);
    assert_int_equal(queue_cancel(f->queue, table_find(f->queue->table, &id), &no), 0);
    queue_turn(f->queue);
    expect(f->client, WIRE_ACCEPTED);
    expect(f->client, WIRE_STATE);
    expect(f->client, WIRE_DONE);
    expect(f->engine, 0);
}

static void test_limits(void **state)
{
    struct fixture *f = *state;
    struct refusal no = {0};

    register_engine(f);
    assert_int_equal(submit_as(f, 1, 5, 100, &no), -1);
    assert_int_equal(no.code, EXIT_CODE_USAGE);
    assert_int_equal(submit_as(f, 1, 5, 99, &no), 0);
    assert_int_equal(submit_as(f, 1, 6, 99, &no), -1);
    assert_int_equal(no.code, EXIT_CODE_DENIED);
    assert_int_equal(submit_as(f, 2, 5, 8, &no), 0);
    assert_int_equal(submit_as(f, 3, 5, 8, &no), -1);
    assert_int_equal(no.code, EXIT_CODE_QUOTA);
    assert_true(no.retry_sec > 0);
    assert_int_equal(submit_as(f, 3, 6, 8, &no), 0);
    assert_int_equal(submit_as(f, 4, 6, 8, &no), -1);
    assert_int_equal(no.code, EXIT_CODE_QUOTA);
    assert_int_equal(submit_as(f, 0, 6, 8, &no), -1);
}

/* The sentence names the setting.  A prompt here is one token, four bytes. */
static void test_limits_have_names(void **state)
{
    static const struct {
        size_t at; /* of the option */
        size_t value;
        const char *name;
        enum exit_code code;
    } limits[] = {
        {offsetof(struct queue_options, max_bytes), 7, "k3queued.max_queued_mib)", EXIT_CODE_QUOTA},
        {offsetof(struct queue_options, max_bytes_per_user), 7, "k3queued.max_queued_mib_per_user)", EXIT_CODE_QUOTA},
        {offsetof(struct queue_options, max_prompt_bytes), 3, "k3queued.max_prompt_bytes)", EXIT_CODE_USAGE},
        {offsetof(struct queue_options, max_prompt_tokens), 0, "k3queued.max_prompt_tokens)", EXIT_CODE_USAGE},
    };
    struct fixture *f = *state;
    const struct queue_options usual = f->queue->options;
    struct k3_id id = id_of(1);
    struct refusal no = {0};

    submit(f, 1);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct queue_options tight = usual;
        *(size_t *)((char *)&tight + limits[i].at) = limits[i].value;
        queue_reload(f->queue, &tight);
        assert_int_equal(submit_as(f, 2, 0, 8, &no), -1);
        assert_non_null(strstr(no.err.text, limits[i].name));
        assert_int_equal(no.code, limits[i].code);
        assert_true((no.retry_sec > 0) == (no.code == EXIT_CODE_QUOTA));
    }
    /* what has ended takes no room */
    queue_reload(f->queue, &usual);
    f->queue->options.max_bytes_per_user = 7;
    assert_int_equal(queue_cancel(f->queue, table_find(f->queue->table, &id), &no), 0);
    submit(f, 2);
}

static void test_tokens_of_an_answer_are_limited(void **state)
{
    struct fixture *f = *state;
    struct k3_id id = id_of(2);
    struct refusal no = {0};

    f->queue->options.max_tokens = 20;
    assert_int_equal(submit_as(f, 1, 5, 21, &no), -1);
    assert_int_equal(no.code, EXIT_CODE_USAGE);
    assert_non_null(strstr(no.err.text, "k3queued.max_tokens"));
    assert_int_equal(submit_as(f, 1, 5, 20, &no), 0);
    assert_int_equal(submit_as(f, 2, 5, 0, &no), 0);
    assert_int_equal(table_find(f->queue->table, &id)->ask.ask.max, 20);
}

static void test_a_rate(void **state)
{
    struct fixture *f = *state;
    struct refusal no = {0};

    f->queue->options.max_rate_per_user = 2;
    f->queue->options.max_queued = f->queue->options.max_queued_per_user = 100;
    assert_int_equal(submit_as(f, 1, 5, 8, &no), 0);
    assert_int_equal(submit_as(f, 1, 5, 8, &no), 0); /* the same one again does not count */
    assert_int_equal(submit_as(f, 2, 5, 8, &no), 0);
    assert_int_equal(submit_as(f, 3, 5, 8, &no), -1);
    assert_int_equal(no.code, EXIT_CODE_QUOTA);
    assert_true(no.retry_sec == 30);
    assert_non_null(strstr(no.err.text, "2 requests a minute (k3queued.max_rate_per_user)"));
    assert_int_equal(submit_as(f, 4, 6, 8, &no), 0); /* somebody else */
    f->queue->now += 20;
    assert_int_equal(submit_as(f, 3, 5, 8, &no), -1);
    assert_true(no.retry_sec >= 10 && no.retry_sec <= 11);
    f->queue->now += no.retry_sec;
    assert_int_equal(submit_as(f, 3, 5, 8, &no), 0);
    f->queue->now += 1000; /* no more is saved up than a minute's worth */
    assert_int_equal(submit_as(f, 5, 5, 8, &no), 0);
    assert_int_equal(submit_as(f, 6, 5, 8, &no), 0);
    assert_int_equal(submit_as(f, 7, 5, 8, &no), -1);
}

static void delta(struct fixture *f, struct engine *e, uint8_t n, uint64_t off, uint32_t token)
{
    struct k3_id id = id_of(n);
    struct message_delta d = {.off = off, .ids = {&token, 1}};

    lease_delta(f->queue, e, &id, &d);
}

static struct request *running(struct fixture *f, struct engine **e)
{
    struct k3_id id = id_of(1);
    struct message m;

    *e = register_engine(f);
    submit(f, 1);
    queue_turn(f->queue);
    while (hear(f->client, &m))
        message_clear(&m);
    expect(f->engine, WIRE_BATCH);
    return table_find(f->queue->table, &id);
}

/* An engine of this incarnation registers, again or anew, and says that it holds this of request 1. */
static size_t goes_on(struct fixture *f, uint64_t incarnation, uint64_t first, uint64_t n)
{
    struct message_held held = {id_of(1), n, {&first, 1}};
    struct message_engine_hello hello = {.job = 7, .inc = incarnation, .held = {&held, 1}};
    struct message_engine_welcome welcome = {0};
    struct engine *e = engines_by_job(f->queue->engines, 7);
    size_t rows;

    if (!e)
        e = engines_add(f->queue->engines, &f->engine_peer, WIRE_VERSION, &hello, f->queue->now);
    lease_reconcile(f->queue, e, &hello, &welcome);
    rows = welcome.held.n;
    if (rows > 0) {
        assert_int_equal(welcome.held.v[0].offs.n, 1);
        assert_int_equal(welcome.held.v[0].offs.v[0], 2);
    }
    lease_reconciled(&welcome);
    assert_int_equal(e->leased, rows);
    return rows;
}

static void test_what_an_engine_goes_on_with(void **state)
{
    struct fixture *f = *state;
    struct engine *e;
    struct request *r = running(f, &e);

    delta(f, e, 1, 0, 50);
    delta(f, e, 1, 1, 51);
    assert_int_equal(goes_on(f, 1, 0, 5), 1); /* never lost */
    assert_int_equal(goes_on(f, 1, 2, 2), 1);
    assert_int_equal(order_length(f->queue->order), 0);
    assert_int_equal(goes_on(f, 1, 3, 5), 0); /* a token is forgotten */
    assert_int_equal(order_length(f->queue->order), 1);
    assert_int_equal(goes_on(f, 1, 0, 1), 0); /* it is another answer */
    assert_int_equal(goes_on(f, 1, 0, 2), 1);
    lease_engine_lost(f->queue, e, "test");
    assert_int_equal(request_state(r), REQUEST_QUEUED);
    assert_int_equal(goes_on(f, 1, 0, 9), 1);
    assert_int_equal(request_state(r), REQUEST_RUNNING);
    assert_int_equal(f->queue->running, 1);
    lease_engine_lost(f->queue, r->engine, "test");
    assert_int_equal(goes_on(f, 2, 0, 9), 0); /* another start of the engine */
    lease_engine_lost(f->queue, engines_by_job(f->queue->engines, 7), "test");

    /* somebody else had it meanwhile, and added nothing */
    e = register_engine(f);
    e->incarnation = 3;
    e->job = 8;
    queue_turn(f->queue);
    assert_ptr_equal(r->engine, e);
    assert_int_equal(goes_on(f, 1, 0, 9), 0);
    assert_ptr_equal(r->engine, e);
    lease_engine_lost(f->queue, e, "test");
    assert_int_equal(goes_on(f, 1, 0, 9), 0);
}

static void test_a_fenced_engine_goes_on_with_nothing(void **state)
{
    struct fixture *f = *state;
    struct engine *e;
    struct request *r = running(f, &e);

    delta(f, e, 1, 0, 50);
    delta(f, e, 1, 1, 51);
    r->broken = true;
    assert_int_equal(goes_on(f, 1, 0, 9), 0);
    assert_int_equal(request_state(r), REQUEST_QUEUED);
    engine_fence(e);
    r->broken = false;
    assert_int_equal(goes_on(f, 1, 0, 9), 0);
}

static void test_a_cancelled_request_is_not_gone_on_with(void **state)
{
    struct fixture *f = *state;
    struct refusal no;
    struct engine *e;
    struct request *r = running(f, &e);

    assert_int_equal(queue_cancel(f->queue, r, &no), 0);
    assert_int_equal(request_state(r), REQUEST_ENDING);
    assert_int_equal(goes_on(f, 1, 0, 9), 0);
    assert_int_equal(request_state(r), REQUEST_CANCELLED);
}

static void test_an_engine_lost_and_another(void **state)
{
    struct fixture *f = *state;
    struct engine *e;
    struct request *r = running(f, &e);
    struct message m;

    delta(f, e, 1, 0, 50);
    delta(f, e, 1, 1, 51);
    expect(f->client, WIRE_DELTA);
    expect(f->client, WIRE_DELTA);
    f->queue->now += 3;
    queue_tick(f->queue); /* so that the silence below is not the daemon's own sleep */
    for (int i = 0; i < 8; i++) {
        f->queue->now += 1;
        queue_tick(f->queue);
    }
    assert_int_equal(engines_count(f->queue->engines), 0);
    assert_int_equal(request_state(r), REQUEST_QUEUED);
    assert_int_equal(hear(f->client, &m), WIRE_STATE);
    assert_int_equal(m.state.state, REQUEST_QUEUED);
    assert_string_equal(m.state.reason, "EngineLost");
    message_clear(&m);
    while (hear(f->engine, &m))
        message_clear(&m); /* heartbeats */

    register_engine(f);
    queue_turn(f->queue);
    assert_int_equal(hear(f->engine, &m), WIRE_BATCH);
    assert_int_equal(m.batch.reqs.n, 1);
    assert_int_equal(m.batch.reqs.v[0].out.n, 2);
    assert_int_equal(m.batch.reqs.v[0].out.v[1], 51);
    assert_true(m.batch.reqs.v[0].ask.sd);
    message_clear(&m);
}

static void test_the_daemons_own_sleep(void **state)
{
    struct fixture *f = *state;
    struct engine *e;

    running(f, &e);
    f->queue->now += 100;
    queue_tick(f->queue);
    assert_int_equal(engines_count(f->queue->engines), 1);
}

/* The reason says first what happened, then what is waited for: nobody waits in silence for a job that is gone. */
static void test_no_engine_comes_back(void **state)
{
    struct fixture *f = *state;
    struct engine *e;
    struct request *r = running(f, &e);

    lease_engine_lost(f->queue, e, "test");
    assert_string_equal(r->reason, "EngineLost");
    f->queue->now += 11;
    queue_tick(f->queue);
    assert_string_equal(r->reason, "NoEngine");
}

/* Seconds pass, and the engine says in each that it is there. */
static void pass(struct fixture *f, struct engine *e, int seconds)
{
    for (int i = 0; i < seconds; i++) {
        f->queue->now += 1;
        e->heard = f->queue->now;
        queue_tick(f->queue);
    }
}

static void test_an_engine_that_stands_still(void **state)
{
    struct fixture *f = *state;
    struct engine *e;
    struct request *r = running(f, &e);
    struct message m;

    pass(f, e, 99);
    delta(f, e, 1, 0, 50);
    pass(f, e, 99);
    engine_beat(e, &(struct message_heartbeat){.steps = 7}, f->queue->now); /* it reads a long prompt */
    pass(f, e, 99);
    engine_beat(e, &(struct message_heartbeat){.steps = 7}, f->queue->now);
    assert_int_equal(request_state(r), REQUEST_RUNNING);
    pass(f, e, 2);
    assert_int_equal(request_state(r), REQUEST_QUEUED);
    assert_int_equal(e->state, ENGINE_FENCED);
    assert_int_equal(r->tokens, 1);
    while (hear(f->engine, &m) == WIRE_HEARTBEAT)
        message_clear(&m);
    assert_int_equal(m.head.type, WIRE_ENGINE_CANCEL);
    queue_turn(f->queue);
    pass(f, e, 100);
    assert_int_equal(request_state(r), REQUEST_QUEUED);
    assert_string_equal(r->reason, "EngineStalled");
    delta(f, e, 1, 1, 51); /* not the holder's any more */
    assert_int_equal(r->tokens, 1);

    e->slots = 2;
    engine_credit(e, 1); /* it has not let go of everything */
    queue_turn(f->queue);
    assert_int_equal(request_state(r), REQUEST_QUEUED);
    engine_credit(e, 2);
    queue_turn(f->queue);
    assert_int_equal(request_state(r), REQUEST_RUNNING);
    assert_ptr_equal(r->engine, e);
    pass(f, e, 99);
    assert_int_equal(request_state(r), REQUEST_RUNNING);
}

/* Half full is more than a quarter full, whatever is left. */
static void test_the_least_loaded_engine(void **state)
{
    struct engine half = {.slots = 2, .busy = 1, .credit = 1}, quarter = {.slots = 4, .busy = 1, .credit = 3};
    struct engine large = {.slots = 8, .busy = 2, .credit = 6}, none = {.slots = 1, .credit = 1};

    (void)state;
    assert_true(engine_less_loaded(&quarter, &half));
    assert_false(engine_less_loaded(&half, &quarter));
    assert_true(engine_less_loaded(&none, &large));
    assert_true(engine_less_loaded(&large, &quarter));
    assert_false(engine_less_loaded(&quarter, &large));
}

static void test_wrong_offsets(void **state)
{
    struct fixture *f = *state;
    struct engine *e;
    struct request *r = running(f, &e);
    struct message_done done = {.why = DONE_STOP, .ctok = 2};

    delta(f, e, 2, 0, 50); /* no such request */
    delta(f, e, 1, 0, 50);
    expect(f->client, WIRE_DELTA);
    delta(f, e, 1, 2, 52);
    expect(f->engine, WIRE_ENGINE_CANCEL);
    delta(f, e, 1, 1, 51); /* too late */
    expect(f->client, 0);
    assert_int_equal(r->tokens, 1);
    assert_int_equal(request_state(r), REQUEST_RUNNING);
    lease_done(f->queue, e, &r->id, &done);
    assert_int_equal(request_state(r), REQUEST_QUEUED);
    assert_int_equal(order_place(f->queue->order, r), 1);
}

static void test_an_end_that_does_not_add_up(void **state)
{
    struct fixture *f = *state;
    struct engine *e;
    struct request *r = running(f, &e);
    struct message_done done = {.why = DONE_STOP, .ctok = 2};

    delta(f, e, 1, 0, 50);
    lease_done(f->queue, e, &r->id, &done);
    assert_int_equal(request_state(r), REQUEST_QUEUED);
}

static void choice_delta(struct fixture *f, struct engine *e, uint32_t choice, uint64_t off, uint32_t token)
{
    struct k3_id id = id_of(1);
    struct message_delta d = {.c = choice, .off = off, .ids = {&token, 1}};

    lease_delta(f->queue, e, &id, &d);
}

static struct engine *register_wide(struct fixture *f, uint16_t version, uint32_t slots)
{
    struct engine *e = register_engine(f);

    e->version = version;
    e->slots = slots;
    engine_credit(e, slots);
    return e;
}

static void test_choices_are_one_request(void **state)
{
    struct fixture *f = *state;
    struct engine *e = register_wide(f, WIRE_VERSION, 4);
    struct message_choice ends[] = {{DONE_STOP, 1}, {DONE_STOP, 0}, {DONE_LENGTH, 2}};
    struct message_done done = {.why = DONE_LENGTH, .ctok = 3, .cs = {ends, 2}};
    struct k3_id id = id_of(1);
    struct refusal no = {0};
    struct message m;

    assert_int_equal(submit_choices(f, 1, 0, 3, 8, &no), 0);
    queue_turn(f->queue);
    assert_int_equal(e->leased, 1);
    assert_int_equal(e->busy, 3);
    assert_int_equal(e->credit, 1);
    expect(f->client, WIRE_ACCEPTED);
    expect(f->client, WIRE_STATE);
    assert_int_equal(hear(f->client, &m), WIRE_STATE);
    assert_int_equal(m.state.n, 3);
    message_clear(&m);
    expect(f->engine, WIRE_BATCH);
    choice_delta(f, e, 2, 0, 50);
    choice_delta(f, e, 0, 0, 51);
    choice_delta(f, e, 2, 1, 52);
    assert_int_equal(hear(f->client, &m), WIRE_DELTA);
    assert_int_equal(m.delta.c, 2);
    message_clear(&m);

    /* Another engine goes on with each of them. */
    lease_engine_lost(f->queue, e, "test");
    assert_int_equal(f->queue->running, 0);
    e = register_wide(f, WIRE_VERSION, 3);
    queue_turn(f->queue);
    assert_int_equal(hear(f->engine, &m), WIRE_BATCH);
    assert_memory_equal(m.batch.reqs.v[0].out.v, ((uint32_t[]){51, 50, 52}), 3 * sizeof(uint32_t));
    assert_memory_equal(m.batch.reqs.v[0].outn.v, ((uint32_t[]){1, 0, 2}), 3 * sizeof(uint32_t));
    message_clear(&m);

    /* An end that leaves one out is none. */
    done.cs.v = k3_calloc(3, sizeof *ends);
    memcpy(done.cs.v, ends, sizeof ends);
    lease_done(f->queue, e, &id, &done);
    assert_int_equal(request_state(table_find(f->queue->table, &id)), REQUEST_QUEUED);
    engine_credit(e, 3);
    queue_turn(f->queue);
    done.cs.n = 3;
    lease_done(f->queue, e, &id, &done);
    assert_int_equal(request_state(table_find(f->queue->table, &id)), REQUEST_DONE);
    assert_int_equal(e->busy, 0);
    while (hear(f->client, &m) != WIRE_DONE)
        message_clear(&m);
    assert_int_equal(m.done.cs.n, 3);
    assert_int_equal(m.done.cs.v[2].ctok, 2);
    message_clear(&m);
}

static void test_choices_are_for_those_who_know_them(void **state)
{
    struct fixture *f = *state;
    struct engine *old = register_wide(f, 1, 4), *narrow, *e;
    struct caller c = {.peer = &f->client_peer, .version = 1};
    struct message_attach from = {0};
    struct k3_id id = id_of(1);
    struct refusal no = {0};

    assert_int_equal(submit_choices(f, 1, 0, 3, 8, &no), -1);
    assert_string_equal(no.err.text, "3 answers are asked for, the engine works on 1 at once");
    engine_drains(old);
    assert_int_equal(submit_choices(f, 1, 0, 5, 8, &no), -1);
    assert_non_null(strstr(no.err.text, "k3queued.max_choices"));
    f->queue->options.max_tokens = 20;
    assert_int_equal(submit_choices(f, 1, 0, 3, 7, &no), -1);
    assert_string_equal(no.err.text, "21 tokens are asked for, the most is 20 (k3queued.max_tokens)");
    assert_int_equal(submit_choices(f, 1, 0, 3, 0, &no), 0);
    assert_int_equal(table_find(f->queue->table, &id)->ask.ask.max, 6);
    queue_turn(f->queue);
    assert_int_equal(queue_attach(f->queue, &c, table_find(f->queue->table, &id), &from, &no), -1);
    assert_string_equal(no.err.text, "the request has 3 answers, which this program is too old for");
    narrow = register_wide(f, WIRE_VERSION, 2);
    queue_turn(f->queue);
    assert_int_equal(old->leased + narrow->leased, 0);
    e = register_wide(f, WIRE_VERSION, 3);
    queue_turn(f->queue);
    assert_int_equal(e->leased, 1);
}

static void test_every_answer_counts_in_the_rate(void **state)
{
    struct fixture *f = *state;
    struct refusal no = {0};

    f->queue->options.max_rate_per_user = 4;
    assert_int_equal(submit_choices(f, 1, 5, 3, 8, &no), 0);
    assert_int_equal(submit_choices(f, 2, 5, 2, 8, &no), -1);
    assert_int_equal(no.code, EXIT_CODE_QUOTA);
    assert_true(no.retry_sec == 15);
    assert_int_equal(submit_choices(f, 2, 5, 1, 8, &no), 0);
}

static void test_given_up_after_losses(void **state)
{
    struct fixture *f = *state;
    struct engine *e;
    struct request *r = running(f, &e);

    for (int i = 1; i < LEASE_LOSSES; i++) {
        lease_engine_lost(f->queue, e, "test");
        assert_int_equal(request_state(r), REQUEST_QUEUED);
        e = register_engine(f);
        queue_turn(f->queue);
        assert_int_equal(request_state(r), REQUEST_RUNNING);
    }
    lease_engine_lost(f->queue, e, "test");
    assert_int_equal(request_state(r), REQUEST_FAILED);
}

static void test_an_engine_that_does_not_stop(void **state)
{
    struct fixture *f = *state;
    struct engine *e;
    struct request *r = running(f, &e);
    struct refusal no;

    assert_int_equal(queue_cancel(f->queue, r, &no), 0);
    assert_int_equal(request_state(r), REQUEST_ENDING);
    for (int i = 0; i < 11; i++) {
        f->queue->now += 1;
        e->heard = f->queue->now;
        queue_tick(f->queue);
    }
    assert_int_equal(request_state(r), REQUEST_CANCELLED);
    assert_int_equal(engines_count(f->queue->engines), 1);
    assert_int_equal(e->leased, 0);
    delta(f, e, 1, 0, 50);
    assert_int_equal(r->tokens, 0);
}

static void finish(struct fixture *f, struct engine *e, struct request *r)
{
    struct message_done done = {.why = DONE_STOP, .ctok = (uint32_t)r->tokens};

    lease_done(f->queue, e, &r->id, &done);
    queue_turn(f->queue);
}

static void test_kept_until_delivered(void **state)
{
    struct fixture *f = *state;
    struct engine *e;
    struct request *r = running(f, &e);
    struct refusal no;

    assert_int_equal(queue_acknowledge(f->queue, r, &no), -1);
    finish(f, e, r);
    assert_int_equal(request_state(r), REQUEST_DONE);
    assert_int_equal(r->user->live, 0);
    assert_non_null(r->answer);
    assert_int_equal(queue_acknowledge(f->queue, r, &no), 0);
    assert_null(r->answer);
    expect(f->client, WIRE_DONE);
    submit(f, 1); /* answered again, though without its text */
    expect(f->client, WIRE_ACCEPTED);
    expect(f->client, WIRE_DONE);
}

static void test_kept_for_a_time(void **state)
{
    struct fixture *f = *state;
    struct engine *e;
    struct request *r = running(f, &e);

    finish(f, e, r);
    f->queue->now += 59;
    queue_tick(f->queue);
    assert_non_null(r->answer);
    f->queue->now += 2;
    queue_tick(f->queue);
    assert_null(r->answer);
}

static void test_rows_are_bounded(void **state)
{
    struct fixture *f = *state;
    struct refusal no;
    struct message m;
    unsigned int n = 0;

    for (unsigned int i = 0; i < QUEUE_ROWS + 10; i++) {
        struct caller c = {.peer = &f->client_peer, .version = WIRE_VERSION};
        struct k3_id id = {{1, (uint8_t)(i >> 8), (uint8_t)i}};
        struct message_submit s = {.ask.max = 1};
        struct request *r;

        assert_int_equal(queue_submit(f->queue, &c, &id, &s, &no), 0);
        queue_turn(f->queue);
        r = table_find(f->queue->table, &id);
        assert_int_equal(queue_cancel(f->queue, r, &no), 0);
        assert_int_equal(queue_acknowledge(f->queue, r, &no), 0);
        while (hear(f->client, &m) == WIRE_ACCEPTED && (message_clear(&m), 0))
            ;
    }
    for (struct request *r = NULL; (r = table_after(f->queue->table, r));)
        n++;
    assert_int_equal(n, QUEUE_ROWS);
}

/* The engine tells of request n, with an answer that it begins with (or not any more). */
static void told(struct fixture *f, struct engine *e, uint8_t n, uint64_t own, bool again)
{
    struct message m = message_of(WIRE_ENGINE_HELD, NULL);

    m.engine_held.id = id_of(n);
    m.engine_held.ask.tok.v = k3_calloc(1, sizeof(uint32_t));
    m.engine_held.ask.tok.n = 1;
    m.engine_held.own = own;
    m.engine_held.again = again;
    lease_held(f->queue, e, &m.engine_held);
    message_clear(&m);
}

static struct request *find(struct fixture *f, uint8_t n)
{
    struct k3_id id = id_of(n);

    return table_find(f->queue->table, &id);
}

static void assert_nothing_counts(struct fixture *f)
{
    const struct user *u = table_user(f->queue->table, 0);

    assert_int_equal(f->queue->live, 0);
    assert_int_equal(f->queue->running, 0);
    assert_int_equal(f->queue->prompt_bytes, 0);
    assert_int_equal(u->live, 0);
    assert_int_equal(u->bytes, 0);
    assert_int_equal(order_length(f->queue->order), 0);
}

/* Its owner, who has not heard that it was accepted, submits it again: he is told of it and watches. */
static void test_told_before_its_owner_asks_again(void **state)
{
    struct fixture *f = *state;
    struct engine *e = register_engine(f);

    for (uint8_t n = 1; n <= 2; n++) { /* before the commit, and after it */
        told(f, e, n, 1, false);
        if (n == 2)
            queue_turn(f->queue);
        submit(f, n);
        queue_turn(f->queue);
        expect(f->client, WIRE_ACCEPTED);
        expect(f->client, WIRE_STATE);
        delta(f, e, n, 0, 50);
        expect(f->client, WIRE_DELTA);
        finish(f, e, find(f, n));
        expect(f->client, WIRE_DONE);
        assert_nothing_counts(f);
    }
    expect(f->engine, 0);
}

static void test_told_twice(void **state)
{
    struct fixture *f = *state;
    struct message_engine_hello hello = {.job = 8, .inc = 2};
    struct engine *e = register_engine(f),
                  *other = engines_add(f->queue->engines, &f->engine_peer, WIRE_VERSION, &hello, f->queue->now);

    told(f, e, 1, 1, false);
    told(f, e, 1, 1, false);
    expect(f->engine, 0);
    assert_int_equal(f->queue->running, 1);
    told(f, other, 1, 1, true);
    expect(f->engine, 0);
    told(f, other, 1, 1, false); /* one of them is enough */
    expect(f->engine, WIRE_ENGINE_CANCEL);
    told(f, other, 1, 2, false);
    expect(f->engine, WIRE_ENGINE_CANCEL);
    assert_ptr_equal(find(f, 1)->engine, e);
    queue_turn(f->queue);
    finish(f, e, find(f, 1));
    assert_nothing_counts(f);
    told(f, e, 1, 1, false); /* and not of what has ended */
    expect(f->engine, WIRE_ENGINE_CANCEL);
    assert_nothing_counts(f);
}

static void test_told_of_nobodys(void **state)
{
    static const uint64_t nobody[] = {0, UINT64_C(1) << 32, (UINT64_C(1) << 32) + 1, UINT64_MAX};
    struct fixture *f = *state;
    struct engine *e = register_engine(f);

    for (size_t i = 0; i < sizeof nobody / sizeof *nobody; i++) {
        told(f, e, 1, nobody[i], false);
        expect(f->engine, WIRE_ENGINE_CANCEL);
    }
    told(f, e, 0, 1, false); /* an id that is none */
    expect(f->engine, WIRE_ENGINE_CANCEL);
    assert_null(table_after(f->queue->table, NULL));
}

/* Whatever becomes of it before the store has it, it is accounted for. */
static void test_told_and_ended_before_the_commit(void **state)
{
    struct fixture *f = *state;
    struct engine *e = register_engine(f);
    struct refusal no;
    struct message_done done = {.why = DONE_CANCELLED};
    struct k3_id id;

    setenv("K3_FAULT", "store-slow", 1);
    fault_init();
    for (uint8_t n = 1; n <= 3; n++) /* more than max_queued_per_user: they were accepted once */
        told(f, e, n, 1, false);
    assert_true(queue_turn(f->queue));
    told(f, e, 4, 1, true);
    delta(f, e, 1, 0, 50);
    finish(f, e, find(f, 1));
    assert_int_equal(queue_cancel(f->queue, find(f, 2), &no), 0);
    expect(f->engine, WIRE_ENGINE_CANCEL);
    id = id_of(2);
    lease_done(f->queue, e, &id, &done);
    queue_expire(f->queue, find(f, 3));
    expect(f->engine, WIRE_ENGINE_CANCEL);
    lease_engine_lost(f->queue, e, "test");
    queue_expire(f->queue, find(f, 4));
    assert_nothing_counts(f);
    for (int i = 0; i < 3; i++) {
        f->queue->now += 1.1;
        queue_turn(f->queue);
    }
    assert_nothing_counts(f);
    assert_int_equal(request_state(find(f, 1)), REQUEST_DONE);
    assert_int_equal(request_state(find(f, 2)), REQUEST_CANCELLED);
    assert_int_equal(request_state(find(f, 3)), REQUEST_EXPIRED);
    assert_int_equal(request_state(find(f, 4)), REQUEST_EXPIRED);
    expect(f->client, 0);
    for (uint8_t n = 1; n <= 4; n++)
        assert_int_equal(queue_acknowledge(f->queue, find(f, n), &no), 0);
    assert_true(TAILQ_EMPTY(&f->queue->kept));

    /* the engine is lost, and the commit puts it in line */
    e = register_engine(f);
    told(f, e, 5, 1, false);
    assert_true(queue_turn(f->queue));
    lease_engine_lost(f->queue, e, "test");
    assert_int_equal(order_length(f->queue->order), 0);
    f->queue->now += 1.1;
    queue_turn(f->queue);
    assert_int_equal(order_length(f->queue->order), 1);
    assert_int_equal(queue_cancel(f->queue, find(f, 5), &no), 0);
    assert_nothing_counts(f);
    unsetenv("K3_FAULT");
    fault_init();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_accepted_only_after_the_commit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancelled_before_the_commit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limits_have_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tokens_of_an_answer_are_limited, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_rate, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_an_engine_goes_on_with, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_fenced_engine_goes_on_with_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_cancelled_request_is_not_gone_on_with, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_engine_lost_and_another, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_daemons_own_sleep, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_engine_comes_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_engine_that_stands_still, setup, teardown),
        cmocka_unit_test(test_the_least_loaded_engine),
        cmocka_unit_test_setup_teardown(test_wrong_offsets, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_end_that_does_not_add_up, setup, teardown),
        cmocka_unit_test_setup_teardown(test_choices_are_one_request, setup, teardown),
        cmocka_unit_test_setup_teardown(test_choices_are_for_those_who_know_them, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_answer_counts_in_the_rate, setup, teardown),
        cmocka_unit_test_setup_teardown(test_given_up_after_losses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_engine_that_does_not_stop, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kept_until_delivered, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kept_for_a_time, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rows_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_told_before_its_owner_asks_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_told_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_told_of_nobodys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_told_and_ended_before_the_commit, setup, teardown),
    };

    if (sodium_init() < 0)
        return 1;
    k3_log_init("queue_test", LOG_EMERG);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
