/* k3cancel - take requests out of the queue, as scancel does jobs */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "client/connect.h"
#include "client/list.h"
#include "client/options.h"

struct arguments {
    bool me, verbose;
    const char *user;
};

#define TO(member) .offset = offsetof(struct arguments, member)

static const struct option_row rows[] = {
    {"me", 0, OPTION_FLAG, TO(me), .sentence = "all my requests"},
    {"user", 'u', OPTION_TEXT, TO(user), .value = "NAME", .sentence = "all requests of this user; all: everybody's"},
    {"verbose", 'v', OPTION_FLAG, TO(verbose), .sentence = "say on stderr what is cancelled"},
};

static const struct option_program program = {
    .name = "k3cancel",
    .operands = "[ID]...",
    .about = "Cancel requests, by id or the first digits of it.  Silent when all went well.",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

static int cancel(struct connection *c, const struct k3_id *id, const struct arguments *a)
{
    struct message m = message_of(WIRE_CANCEL, id), ok;
    char digits[K3_ID_DIGITS + 1];
    struct k3_error err;

    k3_id_format(id, digits);
    if (a->verbose)
        fprintf(stderr, "%s: cancelling request %s\n", program.name, digits);
    int code = connect_ask(c, &m, WIRE_OK, &ok, &err);
    if (code == EXIT_CODE_OK)
        message_clear(&ok);
    else {
        k3_error_prefix(&err, "request %.*s: ", LIST_SHORT, digits);
        options_fail(&program, code, err.text);
    }
    return code;
}

/* All of a user's, or everybody's; what ended in the meantime is no failure. */
static int cancel_all(struct connection *c, const struct arguments *a)
{
    struct list l = {0};
    struct k3_error err;
    bool everybody = a->user && strcmp(a->user, "all") == 0;
    int code = list_fetch(c, a->me, NULL, &l, &err);

    if (code != EXIT_CODE_OK)
        options_fail(&program, code, err.text);
    for (size_t i = 0; i < l.n; i++) {
        const struct message_listing_row *row = &l.v[i];
        if (!a->me && !everybody && (!row->user || strcmp(row->user, a->user) != 0))
            continue;
        int this = cancel(c, &row->id, a);
        if (code == EXIT_CODE_OK)
            code = this;
        if (this == EXIT_CODE_UNREACHABLE)
            break;
    }
    list_clear(&l);
    return code;
}

int main(int argc, char **argv)
{
    struct arguments a = {0};
    struct settings settings;
    struct connection *c = NULL;
    struct k3_error err;
    struct k3_id id;
    int code, first = options_parse(&program, argc, argv, &a, &settings, &code);

    if (first < 0)
        return code;
    if ((first < argc) + a.me + (a.user != NULL) != 1) {
        code = options_fail(&program, EXIT_CODE_USAGE, "give ids, or --me, or --user NAME");
        goto out;
    }
    if (!(c = connect_open(&settings, &err))) {
        code = options_fail(&program, EXIT_CODE_UNREACHABLE, err.text);
        goto out;
    }
    if (first == argc)
        code = cancel_all(c, &a);
    for (int i = first; i < argc && code != EXIT_CODE_UNREACHABLE; i++) {
        int this = list_find(c, argv[i], &id, NULL, &err);
        if (this != EXIT_CODE_OK)
            options_fail(&program, this, err.text);
        else
            this = cancel(c, &id, &a);
        if (code == EXIT_CODE_OK || this == EXIT_CODE_UNREACHABLE)
            code = this;
    }
out:
    connect_close(c);
    settings_clear(&settings);
    return code;
}
