/* k3queue - show the queue, as squeue does */
#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "client/connect.h"
#include "client/format.h"
#include "client/list.h"
#include "client/options.h"
#include "client/words.h"
#include "common/alloc.h"
#include "common/clock.h"

struct arguments {
    bool me, no_header, json, wide;
    const char *user, *format, *types;
    char *named; /* user where it was given as a number; owned */
    double iterate;
};

static const char usual[] = "%.8i %12j %8u %2t %.10M %.7k %.5P %R";
static const char wide[] = "%.8i %12j %8u %9T %.10M %.7k %.7p %.7m %.5P %19V %19S %R";

#define TO(member) .offset = offsetof(struct arguments, member)

static const struct option_row rows[] = {
    {"me", 0, OPTION_FLAG, TO(me), .sentence = "only my requests"},
    {"user", 'u', OPTION_TEXT, TO(user), .value = "USER", .sentence = "only this user's, by name or number"},
    {"format", 'o', OPTION_TEXT, TO(format), .value = "FORMAT",
     .sentence = "columns as %[.][WIDTH]LETTER, see k3queue(1)"},
    {"Format", 'O', OPTION_TEXT, TO(types), .value = "TYPES", .sentence = "columns as TYPE[:[.]WIDTH],..."},
    {"long", 'l', OPTION_FLAG, TO(wide), .sentence = "more columns"},
    {"noheader", 'h', OPTION_FLAG, TO(no_header), .sentence = "no headings"},
    {"iterate", 'i', OPTION_REAL, TO(iterate), .least = 0.1, .most = 86400, .value = "SECONDS",
     .sentence = "again every so many seconds, until Ctrl-C"},
    {"json", 0, OPTION_FLAG, TO(json), .sentence = "as a JSON object"},
};

static const struct option_program program = {
    .name = "k3queue",
    .operands = "[ID]...",
    .about = "Show the requests that wait or run, or those with these ids (finished ones too).",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

static json_t *time_or_null(double t)
{
    return t > 0 ? json_real(t) : json_null();
}

static json_t *row_json(const struct message_listing_row *r)
{
    char id[K3_ID_DIGITS + 1];

    return json_pack("{s:s, s:o, s:o, s:s, s:o, s:i, s:i, s:i, s:i, s:i, s:o, s:o}", "id", k3_id_format(&r->id, id),
                     "user", words_json(r->user), "name", words_json(r->name), "state", request_state_name(r->state),
                     "reason", words_json(r->reason), "place", (int)r->place, "job", (int)r->job, "prompt_tokens",
                     (int)r->ptok, "completion_tokens", (int)r->ctok, "max_tokens", (int)r->max, "submit_time",
                     time_or_null(r->submit_t), "start_time", time_or_null(r->start_t));
}

static bool is_shown(const struct message_listing_row *r, const struct arguments *a)
{
    return !a->user || (r->user && strcmp(r->user, a->user) == 0);
}

static void print_json(const struct list *l, const struct arguments *a)
{
    json_t *list = json_array(), *root = json_pack("{s:o}", "requests", list);

    for (size_t i = 0; i < l->n; i++)
        if (is_shown(&l->v[i], a))
            json_array_append_new(list, row_json(&l->v[i]));
    json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(15));
    putchar('\n');
    json_decref(root);
}

static void print_table(const struct list *l, const struct arguments *a)
{
    const char *format = a->format ? a->format : a->wide ? wide : usual;
    int digits = list_digits(l);
    double now = clock_wall();

    if (!a->no_header)
        format_heading(format, stdout);
    for (size_t i = 0; i < l->n; i++)
        if (is_shown(&l->v[i], a))
            format_row(format, &l->v[i], digits, now, stdout);
}

/* A name, or a number as the daemon shows a user without one. */
static int check_user(struct arguments *a, struct k3_error *err)
{
    char *end;

    if (!a->user || getpwnam(a->user))
        return 0;
    unsigned long uid = strtoul(a->user, &end, 10);
    if (!isdigit((unsigned char)*a->user) || *end || uid >= (uid_t)-1)
        return k3_errorf(err, "%s: no such user", a->user);
    const struct passwd *pw = getpwuid((uid_t)uid);
    if (pw)
        a->user = a->named = k3_strdup(pw->pw_name);
    return 0;
}

static int show(struct connection *c, const struct arguments *a, char *const *ids)
{
    struct list l = {0};
    struct k3_error err;
    char when[32];
    int code = EXIT_CODE_OK;

    if (!*ids)
        code = list_fetch(c, a->me, NULL, &l, &err);
    for (; *ids && code == EXIT_CODE_OK; ids++) {
        size_t before = l.n;
        code = list_fetch(c, a->me, *ids, &l, &err);
        if (code == EXIT_CODE_OK && l.n == before) {
            k3_errorf(&err, "%s: no such request", *ids);
            code = EXIT_CODE_FAILED;
        }
    }
    if (code == EXIT_CODE_OK) {
        if (a->iterate > 0 && !a->json)
            printf("%s\n", words_time(clock_wall(), when));
        if (a->json)
            print_json(&l, a);
        else
            print_table(&l, a);
        if (fflush(stdout) != 0) {
            k3_errorf(&err, "standard output: %s", strerror(errno));
            code = EXIT_CODE_FAILED;
        }
    }
    list_clear(&l);
    return code == EXIT_CODE_OK ? code : options_fail(&program, code, err.text);
}

int main(int argc, char **argv)
{
    struct arguments a = {0};
    struct settings settings;
    struct connection *c = NULL;
    char *of_types = NULL;
    struct k3_error err;
    int code, first = options_parse(&program, argc, argv, &a, &settings, &code);

    if (first < 0)
        return code;
    for (int i = first; i < argc; i++)
        if (!k3_id_is_prefix(argv[i])) {
            k3_errorf(&err, "%s: not an id: up to %d digits of 0-9 and a-f", argv[i], K3_ID_DIGITS);
            code = options_fail(&program, EXIT_CODE_USAGE, err.text);
            goto out;
        }
    if (check_user(&a, &err) < 0) {
        code = options_fail(&program, EXIT_CODE_USAGE, err.text);
        goto out;
    }
    if (a.types)
        a.format = of_types = format_of_types(a.types, &err);
    if (a.types ? !a.format : a.format && format_check(a.format, &err) < 0) {
        code = options_fail(&program, EXIT_CODE_USAGE, err.text);
        goto out;
    }
    if (!(c = connect_open(&settings, &err))) {
        code = options_fail(&program, EXIT_CODE_UNREACHABLE, err.text);
        goto out;
    }
    for (;;) {
        code = show(c, &a, argv + first);
        if (a.iterate <= 0 || code != EXIT_CODE_OK)
            break;
        putchar('\n');
        usleep((useconds_t)(a.iterate * 1e6));
    }
out:
    free(of_types);
    free(a.named);
    connect_close(c);
    settings_clear(&settings);
    return code;
}
