/* mkseeds.c - write the seeds of every target below the working directory, from the tree's own messages, configs and
 * test vectors */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "common/alloc.h"
#include "common/settings.h"
#include "model/safetensors.h"
#include "wire/test/samples.h"

enum { SEED_MAX = 3000 }; /* bytes of a seed out of a vector */

static void die(const char *what, const char *why)
{
    fprintf(stderr, "mkseeds: %s: %s\n", what, why);
    exit(1);
}

static FILE *create(const char *target, const char *name)
{
    char *path = k3_asprintf("%s/%s", target, name);

    mkdir(target, 0777);
    FILE *f = fopen(path, "w");
    if (!f)
        die(path, strerror(errno));
    free(path);
    return f;
}

static void seed(const char *target, const char *name, const void *bytes, size_t len)
{
    FILE *f = create(target, name);

    if (fwrite(bytes, 1, len, f) != len || fclose(f) != 0)
        die(name, strerror(errno));
}

#define SEED(target, name, literal) seed(target, name, literal, sizeof(literal) - 1)

static char *read_tree(const char *file, size_t *len)
{
    char *path = k3_asprintf(TOP_SRCDIR "/%s", file), *text = NULL;
    FILE *f = fopen(path, "r"), *to = open_memstream(&text, len);

    if (!f)
        die(path, strerror(errno));
    for (int c; (c = getc(f)) != EOF;)
        putc(c, to);
    fclose(to);
    fclose(f);
    free(path);
    return text;
}

static void messages(void)
{
    size_t count;
    const struct message *m = message_samples(&count);
    struct k3_error err;

    for (size_t i = 0; i < count; i++) {
        uint8_t header[MESSAGE_HEADER], type = (uint8_t)m[i].head.type;
        struct message_bytes body;
        char *name = k3_asprintf("%02zu-%s", i, message_type_name(type));
        if (message_encode(&m[i], header, &body, &err) < 0)
            die(name, err.text);
        FILE *frame = create("frame", name), *f = create("body", name);
        fwrite(header, 1, sizeof header, frame);
        fwrite(body.data, 1, body.len, frame);
        fwrite(&type, 1, 1, f);
        fwrite(body.data, 1, body.len, f);
        fclose(frame);
        fclose(f);
        free(body.data);
        free(name);
    }
}

static void settings(void)
{
    struct settings s;
    struct k3_error err;
    FILE *f = create("conf", "all");

    if (settings_load(&s, "/dev/null", &err) < 0)
        die("settings", err.text);
    settings_show(&s, f);
    fclose(f);
    settings_clear(&s);
    SEED("conf", "some",
         "// comment\ncommon = { socket = \"ipc://a\\x41\\\"\\\\\"; log_level = \"debug\" };\n"
         "k3served: { tp = 0x4; page_tokens = 64L; restart_delay = 1.5e0, threads = 2 }\nk3submit: {}\n");
    SEED("conf", "ends-in-text", "common = { socket = \"ipc://");
    SEED("conf", "wrong-type", "k3queued: { heartbeat = [1, 2]; user = true; };\n");
    SEED("conf", "wrong-value", "k3submit: { temperature = 1e400; };\nk3submit: { top_p = -0.0; };\n");
}

/* A file of this header, whose length is told wrong by `lie`, and so many bytes of data. */
static void safetensors(const char *name, const char *header, int lie, size_t data)
{
    size_t len = strlen(header);
    char *bytes = k3_zalloc(8 + len + data);

    for (int i = 0; i < 8; i++)
        bytes[i] = (char)((uint64_t)(len + (size_t)lie) >> 8 * i);
    memcpy(bytes + 8, header, len);
    seed("safetensors", name, bytes, 8 + len + data);
    free(bytes);
}

static void checkpoint(void)
{
    static const char *const names[] = {"k3.json", "tiny-a.json", "tiny-b.json"};
    static const uint8_t zeros[64];
    static const struct safetensors_tensor tensors[] = {
        {.name = "model.norm.weight", .dtype = "BF16", .dims = 1, {8}, zeros, 16},
        {.name = "model.layers.0.w", .dtype = "F32", .dims = 2, {2, 3}, zeros, 24},
        {.name = "empty", .dtype = "I64", .dims = 2, {0, 9}, zeros, 0},
        {.name = "one", .dtype = "U8", .dims = 0, {0}, zeros, 1},
    };
    struct k3_error err;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *file = k3_asprintf("etc/models/%s", names[i]);
        size_t len;
        char *text = read_tree(file, &len);
        seed("config", names[i], text, len);
        free(text);
        free(file);
    }
    mkdir("safetensors", 0777);
    if (safetensors_write("safetensors/one", tensors, 1, &err) < 0 ||
        safetensors_write("safetensors/four", tensors, 4, &err) < 0)
        die("safetensors", err.text);
    safetensors(
        "metadata",
        "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}} ", 0, 4);
    safetensors("gap", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}", 0, 4);
    safetensors("overlap",
                "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
                0, 4);
    safetensors("past-the-end", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2,4],\"data_offsets\":[0,8]}}", 0, 4);
    safetensors("too-long", "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 12, 4);
    safetensors("too-large", "{\"a\":{\"dtype\":\"I64\",\"shape\":[2305843009213693952,9],\"data_offsets\":[0,4]}}", 0,
                4);
    SEED("index", "three",
         "{\"metadata\":{\"total_size\":13},\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\","
         "\"c\":\"two.safetensors\"}}");
    SEED("index", "wrong-file",
         "{\"weight_map\":{\"a\":\"two.safetensors\",\"b\":\"one.safetensors\",\"c\":\"two.safetensors\"}}");
    SEED("index", "missing",
         "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\",\"c\":\"two.safetensors\","
         "\"d\":\"one.safetensors\"}}");
    SEED("index", "outside", "{\"weight_map\":{\"a\":\"../one.safetensors\",\"b\":\"\",\"\":\"two.safetensors\"}}");
}

static char *skip_lines(char *text, int n)
{
    for (; n > 0; n--)
        text = strchr(text, '\n') + 1;
    return text;
}

static void vocabulary(void)
{
    size_t len;
    char *toy = read_tree("etc/tokenizer/toy-768.tiktoken", &len);
    char *merges = skip_lines(toy, 256), *end = skip_lines(merges, 40);

    seed("vocab", "single-bytes", toy, (size_t)(merges - toy));
    merges[-1] = '+';
    seed("vocab", "merges", merges - 1, (size_t)(end - merges) + 1);
    free(toy);
    SEED("vocab", "config",
         "+dGg= 256\naGU= 257\n\0{\"added_tokens_decoder\":{\"258\":{\"content\":\"[BOS]\"},"
         "\"310\":{\"content\":\"<|mine|>\"},\"513\":{\"content\":\"[PAD]\"}},\"other\":[1,2.5,null]}");
    SEED("vocab", "few", "AA== 0\nAQ== 1\n");
    SEED("vocab", "empty-name", "+\0{\"added_tokens_decoder\":{\"300\":{\"content\":\"\"}}}");
    SEED("vocab", "prefix", "+\0{\"added_tokens_decoder\":{\"300\":{\"content\":\"[EO\"}}}");
}

/* A prompt as the target parser reads it. */
static void parser_seed(const char *name, const json_t *segments)
{
    static const char *const markers[] = {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", "[EOS]"};
    FILE *f = create("parser", name);
    json_t *segment;
    size_t i;

    putc(0x80, f);
    json_array_foreach(segments, i, segment)
    {
        const json_t *text = json_array_get(segment, 0);
        int marker = -1;
        for (int m = 0; m < 5; m++)
            if (json_is_true(json_array_get(segment, 1)) && strcmp(json_string_value(text), markers[m]) == 0)
                marker = m;
        if (marker >= 0)
            putc(0xf8 + marker, f);
        else
            fwrite(json_string_value(text), 1, json_string_length(text), f);
    }
    fclose(f);
}

static json_t *cases(const char *file)
{
    size_t len;
    char *text = read_tree(file, &len);
    json_error_t e;
    json_t *root = json_loadb(text, len, JSON_ALLOW_NUL, &e);

    if (!root)
        die(file, e.text);
    json_t *list = json_incref(json_object_get(root, "cases"));
    json_decref(root);
    free(text);
    return list;
}

static void chats(void)
{
    json_t *list = cases("tests/data/chat.json"), *one;
    size_t i, taken = 0;

    json_array_foreach(list, i, one)
    {
        char *request = json_dumps(json_object_get(one, "request"), JSON_COMPACT);
        if (strlen(request) <= SEED_MAX && i % 3 == 0 && taken < 16) {
            char *name = k3_asprintf("%03zu", i);
            seed("chat", name, request, strlen(request));
            parser_seed(name, json_object_get(one, "segments"));
            free(name);
            taken++;
        }
        free(request);
    }
    json_decref(list);
    SEED("chat", "markers",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"<|open|>[EOS]<|sep|>\\u0000<|end_of_msg|>\",\"name\":"
         "\"<|close|>\\\"\"}],\"response_format\":{\"type\":\"json_object\"},\"thinking\":false}");
    SEED("parser", "think",
         "\x81Well.\xf9think\xfa\xf8response\xfaYes, \xf0\x9f\x98\x80.\xf9response\xfa\xf9message\xfa\xfb");
    SEED("parser", "call",
         "\x50\xf8tools\xfa\xf8"
         "call tool=\"f&amp;&quot;\" index=\"1\"\xfa\xf8"
         "argument key=\"a\" type=\"number\"\xfa"
         "12345678901234567890\xf9"
         "argument\xfa\xf8"
         "argument key=\"b\"\xfa\"x\xc3\xf9"
         "argument\xfa\xf9"
         "call\xfa"
         "\xf8"
         "call tool=\"g\"\xfa\xf8"
         "json type=\"object\"\xfa{bad\xf9json\xfa\xf9tools\xfa\xfd\x03\x10\xfb");
    SEED("parser", "empty-number",
         "\1\xf8tools\xfa\xf8"
         "call tool=\"f\"\xfa\xf8"
         "argument key=\"a\" type=\"number\"\xfa\xf9"
         "argument\xfa\xfb");
    SEED("parser", "unknown",
         "\xaa\xf8new\xfaskipped \xf8new x\xfa\xf9new\xfa\xf9new\xfa\xf8"
         "call\xfb");
}

static void texts(void)
{
    json_t *list = cases("tests/data/tokens.json"), *one;
    size_t i, step = json_array_size(list) / 24 + 1;

    json_array_foreach(list, i, one)
    {
        const json_t *text = json_object_get(one, "text");
        size_t len = json_string_length(text);
        if (i % step || len > SEED_MAX)
            continue;
        char *name = k3_asprintf("%03zu", i);
        seed("encode", name, json_string_value(text), len);
        if (len >= 16) {
            /* The first byte says how it is cut; what is lost in the middle may be half a character. */
            FILE *f = create("detok", name);
            fwrite(json_string_value(text), 1, len / 2, f);
            fwrite(json_string_value(text) + len / 2 + 1, 1, len - len / 2 - 1, f);
            fclose(f);
        }
        free(name);
    }
    json_decref(list);
    SEED("encode", "slots", "[EOS]<|open|> [BO[BOS]<|reserved_token_780|>\xf0\x9f\x98\xff");
    SEED("detok", "ill-formed",
         "\2\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41\xed\xa0\x80\xf4\x91\x92\x93\xe1\x80\xe2\xf0\x91\x92");
    SEED("stop", "overlapping", "\x13\3aab\4abab\2ab ababaabab");
    SEED("stop", "none", "\x20text");
    SEED("stop", "bad", "\1\0text");
    SEED("stop", "words",
         "\x72\5\n\nEnd\3\xe2\x82\xac"
         "Some text.\n\n\nEn \xe2\x82\xac and more\n\nEnd");
}

int main(void)
{
    messages();
    settings();
    checkpoint();
    vocabulary();
    chats();
    texts();
    return 0;
}
