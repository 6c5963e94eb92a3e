#include "client/list.h"

#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"

/* Take the message's rows over. */
static void add(struct list *l, struct message *m)
{
    const struct message_listing *from = &m->listing;

    l->v = k3_reallocarray(l->v, l->n + from->rows.n, sizeof *l->v);
    if (from->rows.n > 0)
        memcpy(l->v + l->n, from->rows.v, from->rows.n * sizeof *l->v);
    l->n += from->rows.n;
    l->messages = k3_reallocarray(l->messages, l->message_count + 1, sizeof *l->messages);
    l->messages[l->message_count++] = *m;
}

enum exit_code list_fetch(struct connection *c, bool me, const char *digits, struct list *l, struct k3_error *err)
{
    struct k3_id question;
    struct message m;
    bool more = true;

    k3_id_random(&question);
    struct message ask = message_of(WIRE_LIST, &question);
    ask.list.me = me;
    ask.list.id = (char *)digits;
    enum exit_code code = connect_ask(c, &ask, WIRE_LISTING, &m, err);
    while (code == EXIT_CODE_OK && more) {
        more = m.listing.more;
        add(l, &m);
        if (!more)
            break;
        int rc = connect_receive(c, connect_timeout(c), &m, err);
        if (rc == 0)
            connect_unreachable(c, err);
        if (rc <= 0)
            return rc < 0 ? EXIT_CODE_FAILED : EXIT_CODE_UNREACHABLE;
        if (m.head.type != WIRE_LISTING || !k3_id_equal(&m.head.id, &question)) {
            message_clear(&m);
            k3_errorf(err, "k3queued sent something else than the rest of the list");
            return EXIT_CODE_FAILED;
        }
    }
    return code;
}

void list_clear(struct list *l)
{
    for (size_t i = 0; i < l->message_count; i++)
        message_clear(&l->messages[i]);
    free(l->messages);
    free(l->v);
    *l = (struct list){0};
}

enum exit_code list_find(struct connection *c, const char *digits, struct k3_id *id, uint64_t *tokens,
                         struct k3_error *err)
{
    struct list l = {0};
    enum exit_code code = EXIT_CODE_OK;

    if (!tokens && k3_id_parse(id, digits) == 0)
        return EXIT_CODE_OK;
    if (!k3_id_is_prefix(digits)) {
        k3_errorf(err, "%s: not an id: up to %d digits of 0-9 and a-f", digits, K3_ID_DIGITS);
        return EXIT_CODE_USAGE;
    }
    code = list_fetch(c, false, digits, &l, err);
    if (code == EXIT_CODE_OK && l.n == 1) {
        *id = l.v[0].id;
        if (tokens)
            *tokens = l.v[0].ctok;
    } else if (code == EXIT_CODE_OK) {
        k3_errorf(err, l.n ? "%s: %zu requests begin with this, so give more digits" : "%s: no such request", digits,
                  l.n);
        code = EXIT_CODE_FAILED;
    }
    list_clear(&l);
    return code;
}

static int compare_ids(const void *a, const void *b)
{
    return memcmp(a, b, K3_ID_BYTES);
}

int list_digits(const struct list *l)
{
    struct k3_id *ids = k3_calloc(l->n, sizeof *ids);
    int digits = LIST_SHORT;

    for (size_t i = 0; i < l->n; i++)
        ids[i] = l->v[i].id;
    qsort(ids, l->n, sizeof *ids, compare_ids);
    for (size_t i = 1; i < l->n; i++) {
        int same = 0;
        while (same < K3_ID_DIGITS && (ids[i - 1].bytes[same / 2] >> (same % 2 ? 0 : 4) & 15) ==
                                          (ids[i].bytes[same / 2] >> (same % 2 ? 0 : 4) & 15))
            same++;
        if (same < K3_ID_DIGITS && same + 1 > digits)
            digits = same + 1;
    }
    free(ids);
    return digits;
}
