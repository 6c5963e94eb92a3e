/* util.h - what the tests of src/text share */
#ifndef K3_TEXT_TEST_UTIL_H
#define K3_TEXT_TEST_UTIL_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "common/alloc.h"
#include "common/error.h"
#include "text/vocab.h"

/* A model directory with these texts as its files (NULL: no such file). */
static inline void model_dir_fill(const char *dir, const char *ranks, size_t ranks_len, const char *config)
{
    const char *names[] = {"tiktoken.model", "tokenizer_config.json"}, *texts[] = {ranks, config};
    size_t lens[] = {ranks_len, config ? strlen(config) : 0};

    for (int i = 0; i < 2; i++) {
        char *path = k3_asprintf("%s/%s", dir, names[i]);
        unlink(path);
        if (texts[i]) {
            FILE *f = fopen(path, "w");
            assert_non_null(f);
            assert_int_equal(fwrite(texts[i], 1, lens[i], f), lens[i]);
            assert_int_equal(fclose(f), 0);
        }
        free(path);
    }
}

static inline void model_dir_remove(const char *dir)
{
    model_dir_fill(dir, NULL, 0, NULL);
    assert_int_equal(rmdir(dir), 0);
}

/* Load the given files through a directory of their own. */
static inline struct vocab *load_texts(const char *ranks, size_t ranks_len, const char *config, struct k3_error *err)
{
    char dir[] = "/tmp/k3-vocab-XXXXXX";

    assert_non_null(mkdtemp(dir));
    model_dir_fill(dir, ranks, ranks_len, config);
    struct vocab *v = vocab_load(dir, err);
    model_dir_remove(dir);
    return v;
}

static inline char *read_whole(const char *path, size_t *len)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *len = (size_t)ftell(f);
    rewind(f);
    char *text = k3_zalloc(*len + 1);
    assert_int_equal(fread(text, 1, *len, f), *len);
    fclose(f);
    return text;
}

/* The toy vocabulary of 768 or 8192 base tokens. */
static inline struct vocab *toy_vocab(int base)
{
    struct k3_error err;
    size_t len;
    char *path = k3_asprintf(TEST_TOKENIZERS "/toy-%d.tiktoken", base);
    char *ranks = read_whole(path, &len);
    struct vocab *v = load_texts(ranks, len, NULL, &err);

    if (!v)
        fail_msg("%s", err.text);
    free(ranks);
    free(path);
    return v;
}

static inline json_t *load_cases(const char *name)
{
    json_error_t e;
    char *path = k3_asprintf(TEST_DATA "/%s", name);
    json_t *file = json_load_file(path, JSON_ALLOW_NUL, &e);

    if (!file)
        fail_msg("%s: %s", path, e.text);
    json_t *cases = json_incref(json_object_get(file, "cases"));
    json_decref(file);
    free(path);
    assert_true(json_array_size(cases) > 0);
    return cases;
}

#endif
