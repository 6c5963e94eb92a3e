#include "client/prompt.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "common/alloc.h"
#include "text/utf8.h"

enum { IDLE_SOCKET_MS = 1000, IDLE_PIPE_MS = 2000 };

/* Append what can be read from fd, checked against what a request may hold. */
static int read_all(struct buf *raw, int fd, const char *name, struct k3_error *err)
{
    for (;;) {
        char *room = buf_room(raw, 65536);
        ssize_t n = read(fd, room, 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return k3_errorf(err, "%s: %s", name, strerror(errno));
        if (n == 0)
            return 0;
        raw->n += (size_t)n;
        if (raw->n > MESSAGE_REQUEST)
            return k3_errorf(err, "%s: the text is longer than %d MiB", name, MESSAGE_REQUEST >> 20);
    }
}

/* Put a part behind the others: whole characters only, without the newline that ends a file. */
static void add_part(struct buf *text, const char *s, size_t len)
{
    if (len > 0 && s[len - 1] == '\n')
        len--;
    if (len == 0)
        return;
    if (text->n > 0)
        buf_adds(text, "\n\n");
    while (len > 0) {
        struct utf8 c = utf8_read(s, len);
        if (c.kind == UTF8_CHAR)
            buf_add(text, s, c.bytes);
        else
            buf_adds(text, UTF8_REPLACEMENT_BYTES);
        s += c.bytes;
        len -= c.bytes;
    }
}

static int add_file(struct buf *text, int fd, const char *name, struct k3_error *err)
{
    struct buf raw = {NULL, 0, 0};
    int rc = read_all(&raw, fd, name, err);

    if (rc == 0)
        add_part(text, raw.s, raw.n);
    buf_free(&raw);
    return rc;
}

static bool has_input(int ms)
{
    struct pollfd p = {STDIN_FILENO, POLLIN, 0};
    int rc;

    while ((rc = poll(&p, 1, ms)) < 0 && errno == EINTR)
        ;
    return rc > 0;
}

/* Is standard input part of the text?  wanted: there is no other text, or "-f -" asks for it. */
static bool stdin_counts(bool wanted)
{
    struct stat st;

    if (fstat(STDIN_FILENO, &st) < 0)
        return false;
    if (isatty(STDIN_FILENO)) {
        if (wanted)
            fprintf(stderr, "k3submit: type the text and end it with Ctrl-D\n");
        return wanted;
    }
    if (wanted || has_input(0))
        return true;
    if (S_ISSOCK(st.st_mode)) {
        bool input = has_input(IDLE_SOCKET_MS);
        if (!input)
            fprintf(stderr, "k3submit: standard input is idle and left out; -f - waits for it\n");
        return input;
    }
    if (!has_input(IDLE_PIPE_MS))
        fprintf(stderr, "k3submit: waiting for standard input, which is part of the text; </dev/null leaves it out\n");
    return true;
}

int prompt_read(struct buf *text, char *const *words, size_t word_count, const struct option_texts *files,
                struct k3_error *err)
{
    struct buf joined = {NULL, 0, 0};
    bool wanted = word_count == 0 && files->n == 0;

    for (size_t i = 0; i < word_count; i++) {
        if (i > 0)
            buf_addc(&joined, ' ');
        buf_adds(&joined, words[i]);
    }
    if (joined.n > 0)
        add_part(text, joined.s, joined.n);
    buf_free(&joined);

    for (size_t i = 0; i < files->n; i++) {
        if (strcmp(files->v[i], "-") == 0) {
            wanted = true;
            continue;
        }
        int fd = open(files->v[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return k3_errorf(err, "%s: %s", files->v[i], strerror(errno));
        int rc = add_file(text, fd, files->v[i], err);
        close(fd);
        if (rc < 0)
            return -1;
    }
    if (stdin_counts(wanted) && add_file(text, STDIN_FILENO, "standard input", err) < 0)
        return -1;
    if (text->n == 0)
        return k3_errorf(err, "there is no text to submit");
    return 0;
}

char *prompt_json(const struct buf *text, const char *system, bool thinking, const char *effort, struct k3_error *err)
{
    json_t *messages = json_array(), *root = json_object();
    char *json = NULL;

    if (system)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "system", "content", system));
    json_array_append_new(messages, json_pack("{s:s, s:s%}", "role", "user", "content", text->s, text->n));
    json_object_set_new(root, "messages", messages);
    json_object_set_new(root, "thinking", json_boolean(thinking));
    if (thinking)
        json_object_set_new(root, "thinking_effort", json_string(effort));
    /* Only a system text that is not UTF-8 makes a part of it NULL. */
    if (json_array_size(messages) != (system ? 2u : 1u))
        k3_errorf(err, "--system: not UTF-8 text");
    else if (!(json = json_dumps(root, JSON_COMPACT)) || strlen(json) > MESSAGE_REQUEST)
        k3_errorf(err, "the text is longer than %d MiB", MESSAGE_REQUEST >> 20);
    json_decref(root);
    if (json && strlen(json) > MESSAGE_REQUEST) {
        free(json);
        json = NULL;
    }
    return json;
}

int prompt_tokens(const char *text, struct message_u32s *ids, struct k3_error *err)
{
    size_t room = 1;

    for (const char *c = text; *c; c++)
        room += *c == ',';
    ids->v = k3_calloc(room, sizeof *ids->v);
    ids->n = 0;
    for (const char *at = text;; at++) {
        char *end;
        while (isspace((unsigned char)*at))
            at++;
        errno = 0;
        unsigned long long id = strtoull(at, &end, 10);
        if (!isdigit((unsigned char)*at) || errno || id > UINT32_MAX)
            break;
        ids->v[ids->n++] = (uint32_t)id;
        while (isspace((unsigned char)*end))
            end++;
        if (!*end && ids->n <= MESSAGE_IDS)
            return 0;
        if (*end != ',')
            break;
        at = end;
    }
    free(ids->v);
    *ids = (struct message_u32s){NULL, 0};
    return k3_errorf(err, "--prompt-tokens: not a list of at most %d token ids such as 768,12,5", MESSAGE_IDS);
}

int prompt_bias(const char *text, struct message_u32s *ids, struct message_f32s *values, struct k3_error *err)
{
    *ids = (struct message_u32s){k3_calloc(MESSAGE_BIASES, sizeof *ids->v), 0};
    *values = (struct message_f32s){k3_calloc(MESSAGE_BIASES, sizeof *values->v), 0};
    for (const char *at = text; ids->n < MESSAGE_BIASES; at++) {
        char *colon, *end;
        errno = 0;
        unsigned long long id = strtoull(at, &colon, 10);
        if (!isdigit((unsigned char)*at) || errno || id > UINT32_MAX || *colon != ':')
            break;
        float value = strtof(colon + 1, &end);
        if (end == colon + 1 || !(value >= -100 && value <= 100) || (*end && *end != ','))
            break;
        ids->v[ids->n++] = (uint32_t)id;
        values->v[values->n++] = value;
        at = end;
        if (!*at)
            return 0;
    }
    free(ids->v);
    free(values->v);
    *ids = (struct message_u32s){NULL, 0};
    *values = (struct message_f32s){NULL, 0};
    return k3_errorf(err,
                     "--logit-bias: not a list of at most %d token ids and values from -100 to 100 such as 768:-5,12:3",
                     MESSAGE_BIASES);
}
