#include "engine/output.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "text/buf.h"
#include "text/detok.h"
#include "text/stop.h"

/* What one token brings: the end of one text or of a call's arguments, and the beginning of another call at most. */
enum { PARTS = 4 };

/* Room that is there from the start: several times what a token brings and a stop string held back. */
enum { ROOM = 4096 };

struct output {
    const struct vocab *vocab;
    bool ignore_stop_ids;
    struct parser *parser; /* NULL: plain text, through ... */
    struct detok detok;    /* ... this, into ... */
    struct buf plain;      /* ... this */

    struct stop *stop;
    struct buf response; /* of the response: what may yet be the beginning of a stop string */
    uint64_t released;   /* bytes of the response before it */
    bool stopped;        /* one was found */

    uint64_t tokens; /* taken so far */

    /* The delta that is being put together. */
    struct message_part part[PARTS];
    size_t parts;
    struct buf text; /* of all parts, one behind the other */
    struct buf tool; /* the name that belongs to ... */
    size_t named;    /* ... the part before this; 0: no call begins */
};

struct output *output_create(const struct output_options *o, struct k3_error *err)
{
    struct output *out = k3_zalloc(sizeof *out);
    size_t *len = k3_calloc(o->stops, sizeof *len);

    for (size_t i = 0; i < o->stops; i++)
        len[i] = strlen(o->stop[i]);
    out->stop = stop_create(o->stop, len, o->stops, err);
    free(len);
    if (!out->stop) {
        free(out);
        return NULL;
    }
    out->vocab = o->vocab;
    out->ignore_stop_ids = o->ignore_stop_ids;
    if (o->chat)
        out->parser = parser_create(o->vocab, o->start);
    buf_room(&out->plain, ROOM);
    buf_room(&out->response, ROOM);
    buf_room(&out->text, ROOM);
    buf_room(&out->tool, ROOM);
    return out;
}

void output_destroy(struct output *o)
{
    if (!o)
        return;

    int saved = errno;
    parser_destroy(o->parser);
    stop_destroy(o->stop);
    buf_free(&o->response);
    buf_free(&o->plain);
    buf_free(&o->text);
    buf_free(&o->tool);
    free(o);
    errno = saved;
}

/* --- deltas
 * ----------------------------------------------------------------------------------------------------------- */

static void put(struct output *o, enum delta_channel channel, int call, const char *text, size_t len)
{
    struct message_part *last = o->parts > 0 ? &o->part[o->parts - 1] : NULL;

    if (!last || last->ch != channel || last->ti != (uint32_t)call) {
        assert(o->parts < PARTS);
        last = &o->part[o->parts++];
        *last = (struct message_part){.ch = channel, .ti = (uint32_t)call};
    }
    last->txt.len += len;
    buf_add(&o->text, text, len);
}

static void begin_call(struct output *o, int call, const char *tool, size_t len)
{
    put(o, CHANNEL_TOOL, call, NULL, 0);
    o->named = o->parts;
    o->tool.n = 0;
    buf_add(&o->tool, tool, len);
    buf_addc(&o->tool, '\0');
}

static void send_delta(struct output *o, uint32_t token, output_emit *emit, void *arg)
{
    struct message_delta d = {.off = o->tokens - 1, .ids = {&token, 1}, .parts = {o->part, o->parts}};
    size_t at = 0;

    for (size_t i = 0; i < o->parts; at += o->part[i++].txt.len)
        o->part[i].txt.data = o->part[i].txt.len > 0 ? o->text.s + at : NULL;
    if (o->named > 0)
        o->part[o->named - 1].tn = o->tool.s;
    if (emit)
        emit(arg, &d);
    o->parts = o->named = 0;
    o->text.n = 0;
}

/* --- the response channel
 * --------------------------------------------------------------------------------------------- */

static void release(struct output *o, size_t n)
{
    if (n == 0) /* there may be no buffer yet */
        return;
    put(o, CHANNEL_RESPONSE, 0, o->response.s, n);
    o->released += n;
    o->response.n -= n;
    memmove(o->response.s, o->response.s + n, o->response.n);
}

static void take_response(struct output *o, const char *text, size_t len)
{
    uint64_t until;

    if (o->stopped || len == 0)
        return;
    buf_add(&o->response, text, len);
    o->stopped = stop_feed(o->stop, text, len, &until);
    if (until > o->released) /* else it lies in what another block has pushed out */
        release(o, (size_t)(until - o->released));
    if (o->stopped)
        o->response.n = 0;
}

static void on_event(void *arg, const struct parser_event *e)
{
    struct output *o = arg;

    if (o->stopped)
        return;
    if (e->type != PARSER_RESPONSE)
        release(o, o->response.n);
    switch (e->type) {
    case PARSER_THINK:
        put(o, CHANNEL_THINK, 0, e->text, e->len);
        break;
    case PARSER_RESPONSE:
        take_response(o, e->text, e->len);
        break;
    case PARSER_CALL:
        begin_call(o, e->call, e->text, e->len);
        break;
    case PARSER_ARGUMENTS:
        put(o, CHANNEL_TOOL, e->call, e->text, e->len);
        break;
    case PARSER_CALL_END:
    case PARSER_STOP:
        break;
    }
}

static void take_plain(struct output *o, int32_t token)
{
    size_t len;
    const char *bytes = vocab_bytes(o->vocab, token, &len);

    if (!bytes) /* control ids have no text */
        return;
    o->plain.n = 0;
    detok_feed(&o->detok, bytes, len, &o->plain);
    take_response(o, o->plain.s, o->plain.n);
}

/* --- tokens
 * ------------------------------------------------------------------------------------------------------------ */

static bool is_stop_id(const struct output *o, int32_t token)
{
    return token == vocab_special(o->vocab, VOCAB_END_OF_MSG) || token == vocab_special(o->vocab, VOCAB_EOS);
}

/* What was held back has nothing to wait for any more. */
static void finish(struct output *o)
{
    if (o->parser) {
        parser_finish(o->parser, on_event, o);
    } else {
        o->plain.n = 0;
        detok_flush(&o->detok, &o->plain);
        take_response(o, o->plain.s, o->plain.n);
    }
    release(o, o->response.n);
}

bool output_token(struct output *o, int32_t token, bool last, output_emit *emit, void *arg)
{
    o->tokens++;
    if (o->parser)
        parser_feed(o->parser, token, on_event, o);
    else
        take_plain(o, token);

    bool ends = o->stopped || (!o->ignore_stop_ids && is_stop_id(o, token));
    if (ends || last)
        finish(o);
    send_delta(o, (uint32_t)token, emit, arg);
    return ends;
}
