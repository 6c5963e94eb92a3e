#include "text/stop.h"

#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"

/* One string and how much of it the stream's end matches (Knuth, Morris, Pratt). */
struct pattern {
    char s[STOP_BYTES_MAX];
    uint16_t border[STOP_BYTES_MAX]; /* longest proper border of s[0..i] */
    uint16_t len, matched;
};

struct stop {
    struct pattern patterns[STOP_STRINGS_MAX];
    size_t n;
    uint64_t read; /* bytes of the stream */
    uint64_t begin;
    bool found;
};

static void advance(struct pattern *p, char c)
{
    while (p->matched > 0 && p->s[p->matched] != c)
        p->matched = p->border[p->matched - 1];
    p->matched += p->s[p->matched] == c;
}

static void pattern_init(struct pattern *p, const char *s, size_t len)
{
    memcpy(p->s, s, len);
    p->len = (uint16_t)len;
    /* The borders of a string are what its own tail matches of it. */
    for (size_t i = 1; i < len; i++) {
        advance(p, s[i]);
        p->border[i] = p->matched;
    }
    p->matched = 0;
}

struct stop *stop_create(const char *const *strings, const size_t *len, size_t n, struct k3_error *err)
{
    if (n > STOP_STRINGS_MAX) {
        k3_errorf(err, "stop: %zu strings; at most %d are taken", n, STOP_STRINGS_MAX);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        if (len[i] == 0 || len[i] > STOP_BYTES_MAX) {
            k3_errorf(err, "stop[%zu]: has %zu bytes; 1 to %d are taken", i, len[i], STOP_BYTES_MAX);
            return NULL;
        }
    struct stop *s = k3_zalloc(sizeof *s);
    s->n = n;
    for (size_t i = 0; i < n; i++)
        pattern_init(&s->patterns[i], strings[i], len[i]);
    return s;
}

void stop_destroy(struct stop *s)
{
    free(s);
}

/* The most that any string matches of the stream's end. */
static uint16_t longest(const struct stop *s, bool complete)
{
    uint16_t most = 0;

    for (size_t i = 0; i < s->n; i++) {
        const struct pattern *p = &s->patterns[i];
        if (p->matched > most && (!complete || p->matched == p->len))
            most = p->matched;
    }
    return most;
}

bool stop_feed(struct stop *s, const char *text, size_t len, uint64_t *release)
{
    for (size_t i = 0; i < len && !s->found; i++) {
        for (size_t k = 0; k < s->n; k++)
            advance(&s->patterns[k], text[i]);
        s->read++;
        uint16_t complete = longest(s, true);
        s->found = complete > 0;
        s->begin = s->read - complete;
    }
    *release = s->found ? s->begin : s->read - longest(s, false);
    return s->found;
}
