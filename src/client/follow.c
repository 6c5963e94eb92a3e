#include "client/follow.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/status.h"
#include "common/clock.h"
#include "common/loop.h"

static const double redraw_sec = 0.2;
static const double twice_sec = 1.0;     /* a second Ctrl-C within this time cancels */
static const double away_sec = 30.0;     /* a daemon that went away is waited for */
static const double cancelled_sec = 5.0; /* a cancelled request's end is waited for */
static const double ack_sec = 2.0;

enum { TURN_MESSAGES = 100 };

struct follow {
    const struct follow_options *options;
    struct connection *c;
    struct output *output;
    struct loop *loop;
    struct status *status;
    struct loop_timer *deadline; /* what runs out then: `waiting` */
    enum { FOR_NOTHING, FOR_REPLY, FOR_DAEMON, FOR_CANCELLED, FOR_OK, FOR_AGAIN } waiting;
    const struct message *question; /* SUBMIT or ATTACH */
    char id[K3_ID_DIGITS + 1];
    enum request_state state;
    uint32_t place;
    char reason[64];
    double interrupted;    /* when Ctrl-C was last pressed */
    double first;          /* when the first tokens came ... */
    uint64_t first_tokens; /* ... and how many */
    bool away;             /* the daemon is */
    bool doubtful;         /* it was, and has not said since that it knows the request */
    bool attached;         /* from this token on, and nothing came yet */
    uint64_t attached_at;
    bool finished; /* DONE was written; only OK is missing */
    bool ended;    /* what else comes is not looked at */
    int code;
};

static void finish(struct follow *f, int code)
{
    f->code = code;
    f->ended = true;
    if (f->loop)
        loop_stop(f->loop);
}

/* A sentence that ends it. */
static void fail(struct follow *f, int code, const char *sentence)
{
    status_clear(f->status);
    fprintf(stderr, "%s: %s\n", f->options->program, sentence);
    finish(f, code);
}

static void wait_for(struct follow *f, int what, double seconds)
{
    f->waiting = what;
    if (what == FOR_NOTHING)
        loop_timer_unset(f->deadline);
    else
        loop_timer_set(f->deadline, seconds, 0);
}

/* Somebody else has submitted it. */
static bool attached_only(const struct follow *f)
{
    return f->question->head.type == WIRE_ATTACH;
}

/* Does this program write the answer from its first token on? */
static bool writes_all(const struct follow *f)
{
    return !attached_only(f) || f->question->attach.off == 0;
}

static bool talkative(const struct follow *f)
{
    return f->options->verbose || status_live(f->status);
}

/* Where it stands, in a few words. */
static void describe(const struct follow *f, char *text, size_t size)
{
    static const char *const doing[CHANNELS + 1] = {
        [CHANNEL_THINK] = "thinking",
        [CHANNEL_RESPONSE] = "answering",
        [CHANNEL_TOOL] = "calling a tool",
        [CHANNELS] = "generating",
    };
    char count[32];
    uint64_t tokens = output_next(f->output);

    if (f->state == REQUEST_QUEUED && f->place > 0) {
        snprintf(text, size, f->reason[0] ? "place %u (%s)" : "place %u", f->place, f->reason);
    } else if (f->state != REQUEST_RUNNING || tokens == 0) {
        snprintf(text, size, f->reason[0] ? "%s (%s)" : "%s",
                 f->state == REQUEST_RUNNING ? "reading the prompt" : request_state_name(f->state), f->reason);
    } else {
        double seconds = f->first > 0 ? clock_monotonic() - f->first : 0;
        double rate = seconds > 0.5 ? (double)(tokens - f->first_tokens) / seconds : 0;
        int n = snprintf(text, size, "%s %s token%s", doing[output_channel(f->output)], status_count(tokens, count),
                         tokens == 1 ? "" : "s");
        if (rate > 0 && n > 0 && (size_t)n < size)
            snprintf(text + n, size - (size_t)n, ", %.*f tok/s", rate < 10 ? 1 : 0, rate);
    }
}

static void redraw(void *arg)
{
    struct follow *f = arg;
    char text[160];

    if (f->waiting == FOR_REPLY || output_on_terminal(f->output))
        return;
    describe(f, text, sizeof text);
    status_show(f->status, "%s",
                f->waiting == FOR_DAEMON  ? "k3queued went away, waiting for it"
                : f->waiting == FOR_AGAIN ? "k3queued was started anew, waiting for it to hear of the request"
                                          : text);
}

static void ask(void *arg);

static int tell(struct follow *f, enum message_type type)
{
    struct message m = message_of(type, &f->question->head.id);
    struct k3_error err;

    if (type == WIRE_ATTACH) {
        m.attach = output_attach(f->output);
        f->attached_at = output_next(f->output);
        f->attached = true;
    }
    if (connect_send(f->c, &m, &err) == 0)
        return 0;
    fail(f, EXIT_CODE_FAILED, err.text);
    return -1;
}

static void cancel(struct follow *f)
{
    status_clear(f->status);
    if (tell(f, WIRE_CANCEL) == 0)
        wait_for(f, FOR_CANCELLED, cancelled_sec);
}

/* stdout cannot be written.  Without a reader nobody wants the rest; otherwise (disk full) the answer stays with the
 * daemon. */
static void output_failed(struct follow *f, const struct k3_error *err)
{
    if (errno != EPIPE) {
        fail(f, EXIT_CODE_FAILED, err->text);
        return;
    }
    f->code = 128 + SIGPIPE;
    if (attached_only(f))
        finish(f, f->code);
    else
        cancel(f);
}

static void take_reason(struct follow *f, const char *reason)
{
    bool none = !reason || strcmp(reason, "None") == 0;

    snprintf(f->reason, sizeof f->reason, "%s", none ? "" : reason);
}

static void take_accepted(struct follow *f, const struct message_accepted *m)
{
    f->place = m->place;
    take_reason(f, m->reason);
    if (f->options->parsable) {
        printf("%s\n", f->id);
        fflush(stdout);
    }
    if (talkative(f)) {
        const char *effort = m->eff ? m->eff : f->options->effort;
        status_clear(f->status);
        fprintf(stderr, "request %.8s%s%s\n", f->id, effort ? ", reasoning effort " : "", effort ? effort : "");
    }
    redraw(f);
}

static void take_state(struct follow *f, const struct message_state *m)
{
    f->state = m->state;
    f->place = m->place;
    output_expect(f->output, m->n);
    take_reason(f, m->reason);
    redraw(f);
}

static void take_delta(struct follow *f, const struct message_delta *m)
{
    struct k3_error err;

    if (f->code > 128) /* nobody reads it any more */
        return;
    f->state = REQUEST_RUNNING;
    f->attached = false;
    if (output_shows(f->output, m))
        status_clear(f->status);
    int rc = output_delta(f->output, m, &err);
    if (rc < 0)
        output_failed(f, &err);
    else if (rc == 0)
        tell(f, WIRE_ATTACH);
    if (f->first == 0 && output_next(f->output) > f->options->backlog) {
        f->first = clock_monotonic();
        f->first_tokens = output_next(f->output);
    }
}

static void print_usage(const struct follow *f, const struct message_done *m)
{
    char prompt[32], made[32];

    if (!talkative(f))
        return;
    fprintf(stderr, "%s prompt + %s answer tokens in %.1f s", status_count(m->ptok, prompt),
            status_count(m->ctok, made), m->prompt_s + m->gen_s);
    if (m->gen_s > 0 && m->ctok > 1)
        fprintf(stderr, ", %.1f tok/s", m->ctok / m->gen_s);
    if (m->wait_s >= 0.1)
        fprintf(stderr, ", %.1f s waited", m->wait_s);
    fprintf(stderr, "%s\n", m->why == DONE_LENGTH ? ", ended by the token limit" : "");
}

/* An empty line alone would leave the user to guess. */
static void tell_empty(const struct follow *f, const struct message_done *m)
{
    if (!f->options->text || !writes_all(f) || output_answered(f->output))
        return;
    fprintf(stderr, "%s: no answer: %s\n", f->options->program,
            m->why == DONE_LENGTH
                ? "the token limit came before it began; a higher --max-tokens or --no-thinking makes room"
                : "the model ended without one");
}

static int exit_code(const struct follow *f, const struct message_done *m)
{
    switch (m->why) {
    case DONE_STOP:
    case DONE_LENGTH:
        return EXIT_CODE_OK;
    case DONE_CANCELLED:
        return f->code > 128 ? f->code : EXIT_CODE_CANCELLED;
    case DONE_EXPIRED:
        return EXIT_CODE_DEADLINE;
    default:
        return EXIT_CODE_FAILED;
    }
}

static void take_done(struct follow *f, const struct message_done *m)
{
    struct k3_error err;
    int code = exit_code(f, m);

    status_clear(f->status);
    if (code <= 128 && output_end(f->output, &f->question->head.id, m, &err) < 0) {
        output_failed(f, &err);
        if (errno == EPIPE) /* it has ended by itself */
            finish(f, 128 + SIGPIPE);
        return;
    }
    if (code == EXIT_CODE_OK) {
        print_usage(f, m);
        tell_empty(f, m);
    } else if (code <= 128) {
        fprintf(stderr, "%s: request %.8s %s%s%s\n", f->options->program, f->id, done_why_name(m->why),
                m->msg ? ": " : "", m->msg ? m->msg : "");
    }
    f->code = code;
    f->finished = true;
    if (!writes_all(f))
        finish(f, code);
    else if (tell(f, WIRE_ACK) == 0)
        wait_for(f, FOR_OK, ack_sec);
}

static void take_refused(struct follow *f, const struct message_refused *m)
{
    char text[MESSAGE_SENTENCE + 40];

    if (f->finished) { /* of the ACK: the answer is written, so all is well */
        finish(f, f->code);
        return;
    }
    /* A daemon that was started anew may yet hear of the request from the engine that has it.  When no engine had it,
     * it is asked once more; but not what is to be cancelled. */
    if (f->waiting == FOR_CANCELLED)
        f->doubtful = false;
    if (f->doubtful && m->retry > 0) {
        wait_for(f, FOR_AGAIN, m->retry);
        return;
    }
    if (f->doubtful && m->code == EXIT_CODE_FAILED && !attached_only(f) && output_next(f->output) == 0) {
        f->doubtful = false;
        ask(f);
        return;
    }
    /* Dropped for reading too slowly: go on from where we are.  Twice at the same token would be for ever. */
    if (m->retry > 0 && f->waiting != FOR_REPLY && f->waiting != FOR_CANCELLED &&
        !(f->attached && f->attached_at == output_next(f->output))) {
        tell(f, WIRE_ATTACH);
        return;
    }
    snprintf(text, sizeof text, m->retry > 0 ? "%s (try again in %.0f s)" : "%s", m->msg, m->retry);
    fail(f, f->code > 128 ? f->code : (int)m->code, text);
}

static void take(struct follow *f, const struct message *m)
{
    if (f->waiting == FOR_REPLY && m->head.type != WIRE_REFUSED)
        wait_for(f, FOR_NOTHING, 0);
    f->doubtful &= m->head.type == WIRE_REFUSED;
    switch (m->head.type) {
    case WIRE_ACCEPTED:
        take_accepted(f, &m->accepted);
        break;
    case WIRE_STATE:
        take_state(f, &m->state);
        break;
    case WIRE_DELTA:
        take_delta(f, &m->delta);
        break;
    case WIRE_DONE:
        if (!f->finished)
            take_done(f, &m->done);
        break;
    case WIRE_REFUSED:
        take_refused(f, &m->refused);
        break;
    case WIRE_OK: /* of the ACK; that of a CANCEL is followed by DONE */
        if (f->finished)
            finish(f, f->code);
        break;
    }
}

static void ask(void *arg)
{
    struct follow *f = arg;
    struct k3_error err;

    if (connect_send(f->c, f->question, &err) < 0)
        fail(f, EXIT_CODE_FAILED, err.text);
    else
        wait_for(f, FOR_REPLY, connect_timeout(f->c));
}

/* Of a daemon that has not understood: at the beginning, or after another one took its place. */
static void ask_again(struct follow *f)
{
    if (f->waiting == FOR_REPLY)
        ask(f);
    else
        tell(f, WIRE_ATTACH);
}

static void on_message(void *arg, short ready)
{
    struct follow *f = arg;
    struct k3_error err;
    struct message m;
    int rc;

    (void)ready;
    for (int i = 0; !f->ended && i < TURN_MESSAGES && (rc = connect_receive(f->c, 0, &m, &err)) != 0; i++) {
        if (rc < 0 && errno == EPROTONOSUPPORT) {
            ask_again(f);
            continue;
        }
        if (rc < 0) {
            fail(f, EXIT_CODE_FAILED, err.text);
            return;
        }
        if (k3_id_equal(&m.head.id, &f->question->head.id))
            take(f, &m);
        message_clear(&m);
    }
}

static void on_deadline(void *arg)
{
    struct follow *f = arg;
    struct k3_error err;
    char text[200];

    switch (f->waiting) {
    case FOR_REPLY:
        connect_unreachable(f->c, &err);
        fail(f, EXIT_CODE_UNREACHABLE, err.text);
        break;
    case FOR_DAEMON:
        snprintf(text, sizeof text, "k3queued went away and did not come back; request %s may still be in its queue",
                 f->id);
        fail(f, EXIT_CODE_UNREACHABLE, text);
        break;
    case FOR_AGAIN:
        wait_for(f, FOR_NOTHING, 0);
        tell(f, WIRE_ATTACH);
        break;
    case FOR_CANCELLED:
        finish(f, f->code > 128 ? f->code : EXIT_CODE_CANCELLED);
        break;
    default:
        finish(f, f->code);
    }
}

static void on_change(void *arg, short ready)
{
    struct follow *f = arg;
    int change = connect_changed(f->c);

    (void)ready;
    if (change & CONNECT_WENT) {
        f->away = true;
        if (f->waiting == FOR_NOTHING || f->waiting == FOR_AGAIN)
            wait_for(f, FOR_DAEMON, away_sec);
    }
    if (change & CONNECT_CAME && f->away) {
        f->away = false;
        if (f->waiting == FOR_REPLY) {
            ask(f); /* the same id: the same request, whether it arrived or not */
        } else if (f->waiting == FOR_DAEMON) {
            wait_for(f, FOR_NOTHING, 0);
            f->doubtful = true;
            tell(f, WIRE_ATTACH);
        }
    }
    redraw(f);
}

static void on_interrupt(void *arg, int signo)
{
    struct follow *f = arg;
    double now = clock_monotonic();
    char text[160];

    (void)signo;
    if (f->waiting == FOR_REPLY || f->waiting == FOR_CANCELLED || f->finished) {
        status_clear(f->status);
        finish(f, 128 + SIGINT);
        return;
    }
    status_clear(f->status);
    if (attached_only(f)) {
        snprintf(text, sizeof text, "left; request %s goes on, and k3cancel ends it", f->id);
        fail(f, 128 + SIGINT, text);
        return;
    }
    if (f->interrupted > 0 && now - f->interrupted <= twice_sec) {
        cancel(f);
        return;
    }
    f->interrupted = now;
    describe(f, text, sizeof text);
    fprintf(stderr, "%s%s: request %s: %s; Ctrl-C again within a second cancels it\n",
            output_on_terminal(f->output) ? "\n" : "", f->options->program, f->id, text);
}

static void on_end_signal(void *arg, int signo)
{
    struct follow *f = arg;
    char text[160];

    snprintf(text, sizeof text, "left by signal %d; request %s goes on, and k3cancel ends it", signo, f->id);
    if (f->waiting == FOR_REPLY || f->finished)
        finish(f, 128 + signo);
    else
        fail(f, 128 + signo, text);
}

static int prepare(struct follow *f, struct k3_error *err)
{
    void *watch = connect_watch(f->c);

    if (!(f->loop = loop_create(err)) || loop_on_signal(f->loop, SIGINT, on_interrupt, f, err) < 0 ||
        loop_on_signal(f->loop, SIGTERM, on_end_signal, f, err) < 0 ||
        loop_on_signal(f->loop, SIGHUP, on_end_signal, f, err) < 0)
        return -1;
    loop_add_socket(f->loop, connect_socket(f->c), POLLIN, on_message, f);
    if (watch)
        loop_add_socket(f->loop, watch, POLLIN, on_change, f);
    f->deadline = loop_add_timer(f->loop, on_deadline, f);
    if (status_live(f->status))
        loop_timer_set(loop_add_timer(f->loop, redraw, f), redraw_sec, redraw_sec);
    loop_defer(f->loop, ask, f);
    return 0;
}

int follow_request(struct connection *c, const struct message *question, struct output *output,
                   const struct follow_options *options)
{
    struct follow f = {.options = options, .c = c, .output = output, .question = question, .code = EXIT_CODE_FAILED};
    struct k3_error err;

    k3_id_format(&question->head.id, f.id);
    f.status = status_create();
    signal(SIGPIPE, SIG_IGN); /* a write says it too */
    if (prepare(&f, &err) < 0 || loop_run(f.loop, &err) < 0)
        fail(&f, EXIT_CODE_FAILED, err.text);
    status_destroy(f.status);
    loop_destroy(f.loop);
    return f.code;
}
