#include "text/vocab.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/alloc.h"
#include "text/bpe.h"
#include "text/pretok.h"
#include "text/pyjson.h"

#define CONFIG_DEPTH_MAX 32

struct token {
    const char *bytes;
    uint32_t len;
};

struct name {
    char *text;
    size_t len;
    int32_t id;
};

struct vocab {
    char *file; /* tiktoken.model, decoded in place: the tokens' bytes */
    struct token *tokens;
    int32_t base;
    struct bpe *bpe;
    struct name names[VOCAB_SLOTS];         /* by slot */
    const struct name *sorted[VOCAB_SLOTS]; /* by text, none a prefix of another */
    bool opens[256];                        /* may a name begin with this byte? */
};

static const char *const slot_text[VOCAB_SLOTS] = {
    [VOCAB_BOS] = "[BOS]",
    [VOCAB_EOS] = "[EOS]",
    [VOCAB_END_OF_MSG] = "<|end_of_msg|>",
    [VOCAB_OPEN] = "<|open|>",
    [VOCAB_CLOSE] = "<|close|>",
    [VOCAB_SEP] = "<|sep|>",
    [VOCAB_START_HEADER_ID] = "[start_header_id]",
    [VOCAB_END_HEADER_ID] = "[end_header_id]",
    [VOCAB_EOT] = "[EOT]",
    [VOCAB_MEDIA_BEGIN] = "<|media_begin|>",
    [VOCAB_MEDIA_CONTENT] = "<|media_content|>",
    [VOCAB_MEDIA_END] = "<|media_end|>",
    [VOCAB_MEDIA_PAD] = "<|media_pad|>",
    [VOCAB_OSAGENT_MODE] = "<osagent_mode>",
    [VOCAB_UNK] = "[UNK]",
    [VOCAB_PAD] = "[PAD]",
};

/* Read a whole file.  NULL with errno ENOENT when there is none. */
static char *read_file(const char *path, size_t *len, struct k3_error *err)
{
    struct stat st;
    char *data = NULL, *result = NULL;
    FILE *f = fopen(path, "re");

    if (!f || fstat(fileno(f), &st) < 0) {
        k3_errorf(err, "%s: %s", path, strerror(errno));
        goto out;
    }
    if (!S_ISREG(st.st_mode) || st.st_size > VOCAB_FILE_MAX) {
        errno = EINVAL;
        k3_errorf(err, "%s: not a regular file of at most %u bytes", path, VOCAB_FILE_MAX);
        goto out;
    }
    data = k3_try_alloc((size_t)st.st_size, 1);
    if (!data) {
        errno = ENOMEM;
        k3_errorf(err, "%s: no memory for its %lld bytes", path, (long long)st.st_size);
        goto out;
    }
    *len = fread(data, 1, (size_t)st.st_size, f);
    if (*len != (size_t)st.st_size) {
        errno = EIO;
        k3_errorf(err, "%s: read %zu of its %lld bytes", path, *len, (long long)st.st_size);
        goto out;
    }
    result = data;
    data = NULL;
out:
    free(data);
    if (f) {
        int saved = errno;
        fclose(f);
        errno = saved;
    }
    return result;
}

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decode n characters (RFC 4648, padded) to out, which may be in itself.  Returns the number of bytes, or -1. */
static ptrdiff_t base64_decode(char *out, const char *in, size_t n)
{
    char *start = out;

    if (n % 4 != 0)
        return -1;
    for (const char *end = in + n; in < end; in += 4) {
        int pad = end - in == 4 ? (in[3] == '=') + (in[3] == '=' && in[2] == '=') : 0;
        uint32_t group = 0;
        for (int i = 0; i < 4; i++) {
            int digit = i < 4 - pad ? base64_digit(in[i]) : 0;
            if (digit < 0)
                return -1;
            group = group << 6 | (uint32_t)digit;
        }
        for (int i = 0; i < 3 - pad; i++)
            *out++ = (char)(group >> (16 - 8 * i));
    }
    return out - start;
}

/* One line of tiktoken.model, "BASE64 RANK", whose rank must be the next one. */
static int add_token(struct vocab *v, const char *path, char *line, size_t len, struct k3_error *err)
{
    long number = (long)v->base + 1;
    char *space = memchr(line, ' ', len);
    char rank[16];

    if (!space)
        return k3_errorf(err, "%s: line %ld: not base64, a space and a rank", path, number);
    int digits = snprintf(rank, sizeof rank, "%d", v->base);
    if (line + len - (space + 1) != digits || memcmp(space + 1, rank, (size_t)digits) != 0)
        return k3_errorf(err, "%s: line %ld: the rank is not %d, the next in order", path, number, v->base);
    ptrdiff_t bytes = base64_decode(line, line, (size_t)(space - line));
    if (bytes <= 0 || bytes > VOCAB_TOKEN_BYTES_MAX)
        return k3_errorf(err, "%s: line %ld: not the base64 of 1 to %d bytes", path, number, VOCAB_TOKEN_BYTES_MAX);
    int32_t id = bpe_add(v->bpe, line, (size_t)bytes);
    if (id < 0)
        return k3_errorf(err, "%s: line %ld: the same bytes as line %d", path, number, -id);
    v->tokens[v->base++] = (struct token){line, (uint32_t)bytes};
    return 0;
}

static int load_ranks(struct vocab *v, const char *path, struct k3_error *err)
{
    size_t len, lines = 0;

    v->file = read_file(path, &len, err);
    if (!v->file)
        return -1;
    for (size_t i = 0; i < len; i++)
        lines += v->file[i] == '\n' || i + 1 == len;
    if (lines > VOCAB_BASE_MAX)
        return k3_errorf(err, "%s: %zu lines; at most %d tokens are supported", path, lines, VOCAB_BASE_MAX);
    v->tokens = k3_calloc(lines, sizeof *v->tokens);
    v->bpe = bpe_create(lines);
    for (char *line = v->file, *end = v->file + len; line < end;) {
        char *line_end = memchr(line, '\n', (size_t)(end - line));
        if (!line_end)
            line_end = end;
        if (add_token(v, path, line, (size_t)(line_end - line), err) < 0)
            return -1;
        line = line_end + 1;
    }
    for (int c = 0; c < 256; c++) {
        char byte = (char)c;
        if (bpe_rank(v->bpe, &byte, 1) < 0)
            return k3_errorf(err, "%s: has no token for the single byte 0x%02x", path, (unsigned)c);
    }
    return 0;
}

static void name_slot(struct vocab *v, int slot, const char *text)
{
    struct name *name = &v->names[slot];

    free(name->text);
    *name = (struct name){.text = k3_strdup(text), .len = strlen(text), .id = v->base + slot};
}

static void name_slots(struct vocab *v)
{
    for (int slot = 0; slot < VOCAB_SLOTS; slot++) {
        char reserved[40];
        snprintf(reserved, sizeof reserved, "<|reserved_token_%d|>", v->base + slot);
        name_slot(v, slot, slot_text[slot] ? slot_text[slot] : reserved);
    }
}

/* One entry of added_tokens_decoder: "163584": {"content": "[BOS]", ...}. */
static int apply_added_token(struct vocab *v, const char *path, const char *key, const json_t *entry,
                             struct k3_error *err)
{
    const char *content = json_string_value(json_object_get(entry, "content"));
    char *end;
    long id = strtol(key, &end, 10);
    long slot = id - v->base;

    if (end == key || *end || slot < 0 || slot >= VOCAB_SLOTS)
        return k3_errorf(err, "%s: added_tokens_decoder.%.40s: not one of the special ids %d to %d", path, key, v->base,
                         v->base + VOCAB_SLOTS - 1);
    if (!content || !*content)
        return k3_errorf(err, "%s: added_tokens_decoder.%ld.content: not a text", path, id);
    if (slot_text[slot] && strcmp(slot_text[slot], content) != 0)
        return k3_errorf(err, "%s: added_tokens_decoder.%ld.content: %.80s; K3 has %s there", path, id, content,
                         slot_text[slot]);
    name_slot(v, (int)slot, content);
    return 0;
}

/* tokenizer_config.json is optional: K3's own names stand without it. */
static int load_config(struct vocab *v, const char *path, struct k3_error *err)
{
    size_t len;
    json_t *config = NULL, *entry;
    const char *key;
    int rc = -1;

    char *text = read_file(path, &len, err);
    if (!text)
        return errno == ENOENT ? 0 : -1;
    config = pyjson_load(text, len, CONFIG_DEPTH_MAX, err);
    if (!config) {
        k3_error_prefix(err, "%s: ", path);
        goto out;
    }
    json_object_foreach(json_object_get(config, "added_tokens_decoder"), key,
                        entry) if (apply_added_token(v, path, key, entry, err) < 0) goto out;
    rc = 0;
out:
    json_decref(config);
    free(text);
    return rc;
}

static int by_text(const void *a, const void *b)
{
    return strcmp((*(const struct name *const *)a)->text, (*(const struct name *const *)b)->text);
}

/* Sorted, a name and one that it begins would be neighbours. */
static int index_names(struct vocab *v, const char *path, struct k3_error *err)
{
    for (int i = 0; i < VOCAB_SLOTS; i++) {
        v->sorted[i] = &v->names[i];
        v->opens[(unsigned char)v->names[i].text[0]] = true;
    }
    qsort(v->sorted, VOCAB_SLOTS, sizeof *v->sorted, by_text);
    for (int i = 1; i < VOCAB_SLOTS; i++) {
        const struct name *a = v->sorted[i - 1], *b = v->sorted[i];
        if (strncmp(a->text, b->text, a->len) == 0)
            return k3_errorf(err, "%s: added_tokens_decoder: the text of %d begins that of %d", path, a->id, b->id);
    }
    return 0;
}

struct vocab *vocab_load(const char *model_dir, struct k3_error *err)
{
    struct vocab *v = k3_zalloc(sizeof *v), *result = NULL;
    char *ranks = k3_asprintf("%s/tiktoken.model", model_dir);
    char *config = k3_asprintf("%s/tokenizer_config.json", model_dir);

    if (load_ranks(v, ranks, err) < 0)
        goto out;
    name_slots(v);
    if (load_config(v, config, err) < 0 || index_names(v, config, err) < 0)
        goto out;
    result = v;
    v = NULL;
out:
    vocab_destroy(v);
    free(config);
    free(ranks);
    return result;
}

void vocab_destroy(struct vocab *v)
{
    int saved = errno;

    if (!v)
        return;
    for (int i = 0; i < VOCAB_SLOTS; i++)
        free(v->names[i].text);
    bpe_destroy(v->bpe);
    free(v->tokens);
    free(v->file);
    free(v);
    errno = saved;
}

int32_t vocab_base(const struct vocab *v)
{
    return v->base;
}

int32_t vocab_size(const struct vocab *v)
{
    return v->base + VOCAB_SLOTS;
}

int32_t vocab_special(const struct vocab *v, enum vocab_special slot)
{
    return v->base + (int32_t)slot;
}

bool vocab_is_control(const struct vocab *v, int32_t id)
{
    return id >= v->base && id < vocab_size(v);
}

const char *vocab_bytes(const struct vocab *v, int32_t id, size_t *len)
{
    if (id < 0 || id >= v->base)
        return NULL;
    *len = v->tokens[id].len;
    return v->tokens[id].bytes;
}

const char *vocab_name(const struct vocab *v, int32_t id)
{
    return vocab_is_control(v, id) ? v->names[id - v->base].text : NULL;
}

const char *vocab_slot_text(int offset)
{
    return offset >= 0 && offset < VOCAB_SLOTS ? slot_text[offset] : NULL;
}

static void encode_pieces(const struct vocab *v, const char *text, size_t len, struct bpe_scratch *scratch,
                          struct tokens *out)
{
    for (size_t at = 0, n; at < len; at += n) {
        n = pretok_piece(text + at, len - at);
        bpe_encode(v->bpe, text + at, n, scratch, out);
    }
}

/* The slot whose name the text begins with, or NULL. */
static const struct name *name_at(const struct vocab *v, const char *text, size_t len)
{
    if (!v->opens[(unsigned char)text[0]])
        return NULL;
    for (int low = 0, high = VOCAB_SLOTS; low < high;) {
        int middle = (low + high) / 2;
        const struct name *name = v->sorted[middle];
        int order = memcmp(name->text, text, name->len < len ? name->len : len);
        if (order == 0 && name->len <= len)
            return name;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static void encode_pieces_and_names(const struct vocab *v, const char *text, size_t len, struct bpe_scratch *scratch,
                                    struct tokens *out)
{
    size_t plain = 0;

    for (size_t at = 0; at < len;) {
        const struct name *name = name_at(v, text + at, len - at);
        if (!name) {
            at++;
            continue;
        }
        encode_pieces(v, text + plain, at - plain, scratch, out);
        tokens_push(out, name->id);
        at += name->len;
        plain = at;
    }
    encode_pieces(v, text + plain, len - plain, scratch, out);
}

static int encode(const struct vocab *v, const char *text, size_t len, bool raw, struct tokens *out,
                  struct k3_error *err)
{
    struct pretok_slices slices = {0};
    struct bpe_scratch scratch = {0};

    if (len > VOCAB_TEXT_MAX)
        return k3_errorf(err, "the text has %zu bytes; at most %u are encoded at once", len, VOCAB_TEXT_MAX);
    for (size_t at = 0, n; at < len; at += n) {
        n = pretok_slice(&slices, text + at, len - at);
        if (raw)
            encode_pieces_and_names(v, text + at, n, &scratch, out);
        else
            encode_pieces(v, text + at, n, &scratch, out);
    }
    bpe_scratch_free(&scratch);
    return 0;
}

int vocab_encode(const struct vocab *v, const char *text, size_t len, struct tokens *out, struct k3_error *err)
{
    return encode(v, text, len, false, out, err);
}

int vocab_encode_raw(const struct vocab *v, const char *text, size_t len, struct tokens *out, struct k3_error *err)
{
    return encode(v, text, len, true, out, err);
}
