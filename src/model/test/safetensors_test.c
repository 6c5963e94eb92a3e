/* safetensors_test.c - what is written is read back; files that lie are refused in one sentence */
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

#include "common/alloc.h"
#include "model/safetensors.h"
#include "model/test/tree.h"

/* A file of this header and so many bytes of data, its length field changed by `lie`. */
static void write_file(const char *dir, const char *name, const char *header, size_t data, int64_t lie)
{
    size_t len = strlen(header);
    uint8_t *bytes = k3_zalloc(8 + len + data);
    uint64_t claimed = len + (uint64_t)lie;

    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(claimed >> 8 * i);
    memcpy(bytes + 8, header, len);
    for (size_t i = 0; i < data; i++)
        bytes[8 + len + i] = (uint8_t)i;
    tree_write(dir, name, bytes, 8 + len + data);
    free(bytes);
}

static void expect_refused(const char *dir, const char *sentence)
{
    struct k3_error err = {""};
    struct safetensors *st = safetensors_open_dir(dir, &err);

    if (st && safetensors_check_gaps(st, &err) == 0)
        fail_msg("opened, instead of \"%s\"", sentence);
    safetensors_close(st);
    if (!strstr(err.text, sentence) || !strstr(err.text, dir))
        fail_msg("\"%s\" instead of \"%s\"", err.text, sentence);
}

#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}"

static void reads_what_a_file_holds(void **state)
{
    const char *dir = *state;
    struct k3_error err;

    write_file(dir, "model.safetensors",
               "{\"__metadata__\":{\"format\":\"pt\"},"
               "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[24,27]}," A
               ",\"nothing\":{\"dtype\":\"I64\",\"shape\":[0,9],\"data_offsets\":[24,24]},"
               "\"one\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[27,29]}}   ",
               29, 0);
    struct safetensors *st = safetensors_open_dir(dir, &err);
    assert_non_null(st);
    assert_int_equal(safetensors_check_gaps(st, &err), 0);
    assert_int_equal(safetensors_count(st), 4);
    const struct safetensors_tensor *b = safetensors_find(st, "b");
    assert_non_null(b);
    assert_string_equal(b->dtype, "U8");
    assert_int_equal(b->dims, 1);
    assert_int_equal(b->shape[0], 3);
    assert_memory_equal(b->data, "\x18\x19\x1a", 3);
    assert_string_equal(safetensors_at(st, 0)->name, "a"); /* in the order of the data */
    assert_int_equal(safetensors_at(st, 0)->dims, 2);
    assert_int_equal(safetensors_find(st, "one")->bytes, 2);
    assert_int_equal(safetensors_find(st, "nothing")->bytes, 0);
    assert_null(safetensors_find(st, "c"));
    assert_null(safetensors_find(st, "__metadata__"));
    assert_int_equal(safetensors_index(st, safetensors_find(st, "a")), 0);
    for (size_t i = 0; i < safetensors_count(st); i++)
        safetensors_drop(st, safetensors_at(st, i));
    assert_memory_equal(b->data, "\x18\x19\x1a", 3); /* only the cache forgot */
    safetensors_close(st);
}

static void hostile_files_are_refused(void **state)
{
    static const struct {
        const char *header;
        size_t data;
        int64_t lie;
        const char *sentence;
    } cases[] = {
        /* lengths */
        {"{" A "}", 24, 1000, "a header of 1057 bytes in a file of 89"},
        {"{" A "}", 24, 25, "a header of 82 bytes in a file of 89"},
        {"{" A "}", 24, 1, "line 1, column"},
        {"{" A "}", 24, -1, "line 1, column"},
        {"{" A "}", 24, 1LL << 40, "more than the 100000000 that the format allows"},
        {"{" A "}", 24, INT64_MIN, "more than the 100000000"},
        {"{" A "}", 24, -1000, "more than the 100000000"},
        {"{" A "}", 23, 0, "tensor a: data_offsets [0, 24] do not lie in the file's 23 bytes of data"},
        {"{" A "}", 25, 0, "the last tensor ends at 24 of 25 bytes of data"},
        /* JSON */
        {"", 24, 0, "line 1, column"},
        {"[]", 24, 0, "not a JSON object"},
        {"{" A "}}", 24, 0, "line 1, column"},
        {"{" A "," A "}", 24, 0, "duplicate object key"},
        {"{\"\xff\":{}}", 0, 0, "line 1, column"},
        {"{\"a\\u0000b\":{}}", 0, 0, "line 1, column"},
        {"{\"a\":[[[[[[]]]]]]}", 0, 0, "JSON nests more than 4 deep"},
        /* names */
        {"{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, 0, "a tensor's name has 0 bytes"},
        {"{\"\\u001b[2J\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, 0, "control characters"},
        /* entries */
        {"{\"a\":7}", 0, 0, "tensor a has no dtype or one that is unknown"},
        {"{\"a\":{}}", 0, 0, "tensor a has no dtype or one that is unknown"},
        {"{\"a\":{\"dtype\":\"F33\",\"shape\":[2,3],\"data_offsets\":[0,24]}}", 24, 0, "tensor a has no dtype"},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[2,3],\"data_offsets\":[0,24]}}", 24, 0,
         "tensor a: its shape and dtype F64 do not make the 24 bytes"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":3,\"data_offsets\":[0,3]}}", 3, 0, "tensor a: shape is not a list"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-3],\"data_offsets\":[0,3]}}", 3, 0, "tensor a: shape is not a list"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3.0],\"data_offsets\":[0,3]}}", 3, 0, "tensor a: shape is not a list"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1, 0,
         "tensor a: shape is not a list of at most 8 sizes"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3]}}", 3, 0, "tensor a: data_offsets is not a pair"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3,3]}}", 3, 0, "data_offsets is not a pair"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[-3,0]}}", 3, 0, "data_offsets is not a pair"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[3,0]}}", 3, 0, "[3, 0] do not lie in"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[9223372036854775804,9223372036854775807]}}", 3, 0,
         "do not lie in the file's 3 bytes"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,99999999999999999999]}}", 3, 0, "too big"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0, 0,
         "tensor a: its shape and dtype F32 do not make the 0 bytes"},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0, 0,
         "do not make the 0 bytes"},
        /* tiling */
        {"{" A ",\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[25,27]}}", 27, 0,
         "tensor b begins at 25, but the one before it ends at 24: a gap"},
        {"{" A ",\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[23,25]}}", 25, 0,
         "tensor b begins at 23, but the one before it ends at 24: they overlap"},
        {"{" A ",\"b\":{\"dtype\":\"I32\",\"shape\":[6],\"data_offsets\":[0,24]}}", 24, 0, "they overlap"},
        {"{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", 3, 0, "tensor b begins at 1"},
    };
    const char *dir = *state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(dir, "model.safetensors", cases[i].header, cases[i].data, cases[i].lie);
        expect_refused(dir, cases[i].sentence);
    }
    for (size_t len = 0; len < 8; len++) {
        tree_write(dir, "model.safetensors", "\0\0\0\0\0\0\0", len);
        expect_refused(dir, "bytes are too few for a safetensors file");
    }
}

static void long_names_and_long_shapes_keep_sentences_short(void **state)
{
    const char *dir = *state;
    char name[400], *header;

    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    header = k3_asprintf("{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);
    write_file(dir, "model.safetensors", header, 1, 0);
    expect_refused(dir, "a tensor's name has 399 bytes, not 1 to 250");
    free(header);
}

static void what_is_no_file_is_refused(void **state)
{
    const char *dir = *state;
    char *path = k3_asprintf("%s/model.safetensors", dir);
    struct k3_error err;

    expect_refused(dir, "holds neither model.safetensors nor model.safetensors.index.json");
    assert_null(safetensors_open(dir, &err));
    assert_non_null(strstr(err.text, "not a regular file"));
    assert_null(safetensors_open(path, &err));
    assert_non_null(strstr(err.text, "No such file or directory"));
    free(path);
}

#define INDEX "model.safetensors.index.json"

static void write_index(const char *dir, const char *text)
{
    tree_write(dir, INDEX, text, strlen(text));
}

static void write_two_files(const char *dir)
{
    write_file(dir, "m-1.safetensors", "{" A "}", 24, 0);
    write_file(dir, "m-2.safetensors", "{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, 0);
}

static void reads_several_files_by_their_index(void **state)
{
    const char *dir = *state;
    struct k3_error err;

    write_two_files(dir);
    write_index(
        dir, "{\"metadata\":{\"total_size\":26},\"weight_map\":{\"b\":\"m-2.safetensors\",\"a\":\"m-1.safetensors\"}}");
    struct safetensors *st = safetensors_open_dir(dir, &err);
    assert_non_null(st);
    assert_int_equal(safetensors_count(st), 2);
    const struct safetensors_tensor *b = safetensors_find(st, "b");
    assert_non_null(b);
    assert_non_null(strstr(safetensors_file(st, b->file), "/m-2.safetensors"));
    assert_memory_equal(b->data, "\0\1", 2);
    safetensors_close(st);
}

static void an_index_that_lies_is_refused(void **state)
{
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"{}", "weight_map is missing"},
        {"{\"weight_map\":[]}", "weight_map is missing or not an object"},
        {"{\"weight_map\":{\"a\":7}}", "not the name of a file beside it"},
        {"{\"weight_map\":{\"a\":\"\"}}", "not the name of a file beside it"},
        {"{\"weight_map\":{\"a\":\"..\"}}", "not the name of a file beside it"},
        {"{\"weight_map\":{\"a\":\"../m-1.safetensors\"}}", "not the name of a file beside it"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "not the name of a file beside it"},
        {"{\"weight_map\":{\"a\":\"m-3.safetensors\"}}", "m-3.safetensors: No such file or directory"},
        {"{\"weight_map\":{\"a\":\"m-1.safetensors\",\"c\":\"m-1.safetensors\"}}",
         "tensor c is not in m-1.safetensors"},
        {"{\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-1.safetensors\"}}",
         "tensor b is not in m-1.safetensors"},
        {"{\"weight_map\":{\"a\":\"m-2.safetensors\",\"b\":\"m-1.safetensors\"}}",
         "tensor a is not in m-2.safetensors"},
        {"{\"weight_map\":{\"a\":\"m-1.safetensors\",\"a\":\"m-2.safetensors\"}}", "duplicate object key"},
        {"{\"metadata\":{\"total_size\":27},\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-2.safetensors\"}}",
         "total_size is 27, but the files hold 26 bytes"},
        {"{\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-4.safetensors\"}}", "tensor c is not in the index"},
        {"{\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-5.safetensors\"}}", "tensor a is in "},
    };
    const char *dir = *state;

    write_two_files(dir);
    write_file(dir, "m-4.safetensors",
               "{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
               "\"c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
               4, 0);
    write_file(dir, "m-5.safetensors", "{" A ",\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[24,26]}}", 26,
               0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_index(dir, cases[i].text);
        expect_refused(dir, cases[i].sentence);
    }
}

static void what_is_written_is_read_back(void **state)
{
    const char *dir = *state;
    const float logits[6] = {1, -2, 3.5f, 0, 1e30f, -0.0f};
    const int32_t tokens[2] = {7, -7};
    const struct safetensors_tensor out[] = {
        {.name = "logits", .dtype = "F32", .dims = 2, .shape = {2, 3}, .data = logits},
        {.name = "tokens", .dtype = "I32", .dims = 1, .shape = {2}, .data = tokens},
        {.name = "none", .dtype = "F32", .dims = 2, .shape = {0, 3}, .data = logits},
    };
    char *path = k3_asprintf("%s/out.safetensors", dir);
    struct k3_error err = {""};

    assert_int_equal(safetensors_write(path, out, 3, &err), 0);
    struct safetensors *st = safetensors_open(path, &err);
    assert_non_null(st);
    for (int i = 0; i < 3; i++) {
        const struct safetensors_tensor *in = safetensors_find(st, out[i].name);
        assert_non_null(in);
        assert_string_equal(in->dtype, out[i].dtype);
        assert_int_equal(in->dims, out[i].dims);
        assert_memory_equal(in->shape, out[i].shape, (size_t)in->dims * sizeof *in->shape);
        assert_memory_equal(in->data, out[i].data, in->bytes);
    }
    assert_int_equal(safetensors_find(st, "logits")->bytes, 24);
    assert_int_equal((uintptr_t)safetensors_find(st, "logits")->data % 8, 0);
    safetensors_close(st);
    free(path);
}

static void an_unfinished_file_leaves_nothing(void **state)
{
    const char *dir = *state;
    char *path = k3_asprintf("%s/out.safetensors", dir), *partial = k3_asprintf("%s.partial", path);
    const int64_t shape[] = {4}, huge[] = {INT64_MAX, 2};
    struct k3_error err = {""};

    struct safetensors_writer *w = safetensors_writer_create(path, &err);
    assert_non_null(w);
    assert_int_equal(safetensors_writer_declare(w, "a\"b", "U8", 1, shape, &err), -1);
    assert_int_equal(safetensors_writer_declare(w, "a", "U9", 1, shape, &err), -1);
    assert_int_equal(safetensors_writer_declare(w, "a", "U8", 2, huge, &err), -1);
    assert_int_equal(safetensors_writer_declare(w, "a", "U8", 1, shape, &err), 0);
    assert_int_equal(safetensors_writer_write(w, "abc", 3, &err), 0);
    assert_int_equal(access(partial, F_OK), 0);
    assert_int_equal(safetensors_writer_finish(w, &err), -1);
    assert_non_null(strstr(err.text, "3 bytes written for tensors of 4"));
    safetensors_writer_destroy(w);
    assert_int_equal(access(partial, F_OK), -1);
    assert_int_equal(access(path, F_OK), -1);

    assert_null(safetensors_writer_create("/nowhere/out.safetensors", &err));
    assert_non_null(strstr(err.text, "/nowhere/out.safetensors"));
    free(path);
    free(partial);
}

static int set_up(void **state)
{
    *state = tree_create();
    return 0;
}

static int tear_down(void **state)
{
    tree_remove(*state);
    free(*state);
    return 0;
}

#define test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(reads_what_a_file_holds),
        test(hostile_files_are_refused),
        test(long_names_and_long_shapes_keep_sentences_short),
        test(what_is_no_file_is_refused),
        test(reads_several_files_by_their_index),
        test(an_index_that_lies_is_refused),
        test(what_is_written_is_read_back),
        test(an_unfinished_file_leaves_nothing),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
