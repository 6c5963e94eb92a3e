/* pack_test.c - a pack has the bits of the checkpoint, in any layout; one that is stopped, cut, changed or foreign */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <sodium.h>

#include "common/alloc.h"
#include "common/fault.h"
#include "common/log.h"
#include "model/pack.h"
#include "model/synthetic.h"
#include "model/test/tree.h"

static struct k3_stream *stream;

/* A checkpoint, and where its packs go. */
struct place {
    char *model, *out;
    struct k3_config config;
};

static void write_model(struct place *p)
{
    char *path = k3_asprintf("%s/model.safetensors", p->model);
    struct k3_error err = {""};

    assert_int_equal(k3_config_parse("small", small_config, strlen(small_config), &p->config, &err), 0);
    p->config.mxfp4 = 1;
    if (synthetic_write(&p->config, path, &err) < 0)
        fail_msg("%s", err.text);
    tree_write(p->model, "config.json", small_config, strlen(small_config));
    tree_write(p->out, "config.json", small_config, strlen(small_config));
    free(path);
}

static void forget(void **state, const char *name)
{
    char *path = k3_asprintf("%s/%s", ((struct place *)*state)->out, name);

    unlink(path);
    free(path);
}

/* All ranks of a layout. */
static int pack_layout(const struct place *p, const struct layout *l, enum k3_dtype dense, struct pack_written *written,
                       struct k3_error *err)
{
    struct checkpoint *cp = checkpoint_open(p->model, &p->config, 0, err);
    struct k3_config c = p->config;
    int rank[8];

    if (!cp)
        return -1;
    c.dense = dense;
    for (int r = 0; r < layout_ranks(l); r++)
        rank[r] = r;
    int rc = pack_write(&(struct pack_writing){.dir = p->out,
                                               .checkpoint = cp,
                                               .source = "there",
                                               .config = &c,
                                               .layout = l,
                                               .rank = rank,
                                               .ranks = layout_ranks(l),
                                               .threads = 2},
                        written, err);
    checkpoint_close(cp);
    return rc;
}

static int pack(const struct place *p, int tp, enum k3_dtype dense, struct pack_written *written, struct k3_error *err)
{
    return pack_layout(p, &(struct layout){tp, 1, 1}, dense, written, err);
}

static void pack_all(const struct place *p, int tp, enum k3_dtype dense, struct pack_written written[8])
{
    struct k3_error err = {""};

    if (pack(p, tp, dense, written, &err) < 0)
        fail_msg("%s", err.text);
}

/* Another layout takes another directory. */
static void clear(void **state)
{
    static const char *const ends[] = {"k3pack", "json", "k3pack.partial", "k3pack.hashes"};

    forget(state, PACKINFO_NAME);
    for (int r = 0; r < 8; r++)
        for (size_t e = 0; e < sizeof ends / sizeof *ends; e++) {
            char name[64];
            snprintf(name, sizeof name, "rank%d.%s", r, ends[e]);
            forget(state, name);
        }
}

static struct weights *load_shard(const struct place *p, const struct shard *sh, struct k3_error *err)
{
    struct k3_config c;

    if (k3_config_load(p->out, &c, err) < 0)
        return NULL;
    c.mxfp4 = 1;
    return weights_load(p->out, &c, sh, stream, NULL, err);
}

static struct weights *load(const struct place *p, int tp, int rank, struct k3_error *err)
{
    return load_shard(p, &(struct shard){.tp = tp, .rank = rank}, err);
}

static void refused(const struct place *p, int tp, int rank, const char *sentence)
{
    struct k3_error err = {""};
    struct weights *w = load(p, tp, rank, &err);

    if (w || !strstr(err.text, sentence))
        fail_msg("\"%s\" instead of \"%s\"", w ? "loaded" : err.text, sentence);
}

/* --- the same bits ------------------------------------------------------------------------------------------------ */

static void same_tensor(const struct k3_tensor *a, const struct k3_tensor *b, const char *name, size_t bytes)
{
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->cols, b->cols);
    assert_int_equal(a->stride, b->stride);
    if (memcmp(a->data, b->data, bytes) != 0)
        fail_msg("%s differs", name);
}

/* Of the experts all, which lie in one stretch. */
static void same_weights(const struct k3_config *c, const struct shard *sh, const struct weights *a,
                         const struct weights *b)
{
    for (int layer = -1; layer < c->layers; layer++)
        for (enum tensor_role role = 0; role < T_ROLES; role++) {
            struct shard_part p = shard_of(c, sh, role);
            size_t bytes =
                (size_t)((p.row.end - p.row.begin) * (p.col.end - p.col.begin)) * (size_t)inventory_element_bytes(role);
            if (!shard_has(c, sh, role, layer) || inventory_is_expert(role))
                continue;
            same_tensor(weights_get(a, role, layer), weights_get(b, role, layer), inventory_name(role), bytes);
        }
    for (int layer = 0; layer < c->layers; layer++) {
        const struct kern_expert_matrix *x = weights_experts(a, T_W1, layer), *y = weights_experts(b, T_W1, layer);
        assert_true(!x == !y);
        if (!x)
            continue;
        assert_int_equal(x->data_step, y->data_step);
        assert_memory_equal(x->first.data, y->first.data, x->data_step * shard_count(c, sh, SHARD_EXPERTS));
    }
}

static void a_pack_has_the_bits_of_the_checkpoint(void **state)
{
    /* 3 heads on 5 ranks: two have none */
    static const struct layout layouts[] = {{1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {5, 1, 1},
                                            {1, 2, 1}, {2, 1, 2}, {4, 2, 2}};
    const struct place *p = *state;
    struct pack_written written[8];
    struct k3_error err = {""};

    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
        if (pack_layout(p, &layouts[l], K3_BF16, written, &err) < 0)
            fail_msg("%s", err.text);
        for (int rank = 0; rank < layout_ranks(&layouts[l]); rank++) {
            struct shard sh = layout_shard(&layouts[l], rank);
            struct weights *a = weights_load(p->model, &p->config, &sh, stream, NULL, &err);
            struct weights *b = load_shard(p, &sh, &err);
            if (!a || !b)
                fail_msg("%s", err.text);
            assert_int_equal(written[rank].bytes, weights_bytes(&p->config, &sh));
            assert_int_equal(written[rank].kept, 0);
            same_weights(&p->config, &sh, a, b);
            weights_destroy(a);
            weights_destroy(b);
        }
        clear(state);
    }
}

/* Codes and scales of one matrix, from the checkpoint's bytes. */
static void check_matrix(const struct place *p, const struct checkpoint *cp, const struct shard *sh,
                         const struct weights *w, enum tensor_role role, int layer, enum k3_dtype form)
{
    const struct k3_tensor *t = weights_get(w, role, layer);
    struct shard_part part = shard_of(&p->config, sh, role);
    const uint8_t *data = checkpoint_data(cp, &(struct tensor_id){(int16_t)role, (int16_t)layer, -1});
    int64_t cols = part.col.end - part.col.begin;
    size_t scale_bytes = form == K3_FP8_E4M3 ? sizeof(float) : (size_t)cols / K3_MX_BLOCK;
    uint8_t *code = k3_zalloc((size_t)cols + 1), *scale = k3_zalloc(scale_bytes + 1);

    assert_int_equal(t->dtype, form);
    assert_int_equal(t->stride, cols);
    for (int64_t r = 0; r < t->rows; r++) {
        assert_int_equal(quantize_row(form, data + 2 * (part.row.begin + r) * part.cols, part.cols, part.col.begin,
                                      part.col.end, code, scale),
                         0);
        assert_memory_equal((uint8_t *)t->data + r * cols, code, (size_t)cols);
        assert_memory_equal((uint8_t *)t->scale + (size_t)r * scale_bytes, scale, scale_bytes);
    }
    free(code);
    free(scale);
}

static void dense_matrices_have_the_form_that_was_asked_for(void **state)
{
    static const enum k3_dtype forms[] = {K3_FP8_E4M3, K3_MXFP8};
    static const enum tensor_role others[] = {T_EMBED, T_ROUTER, T_MLA_KV_B, T_INPUT_NORM};
    const struct place *p = *state;
    struct pack_written written[8];
    struct k3_error err = {""};
    struct checkpoint *cp = checkpoint_open(p->model, &p->config, 0, &err);

    assert_non_null(cp);
    for (int f = 0; f < 2; f++) {
        struct k3_config c = p->config;
        c.dense = forms[f];
        pack_all(p, 3, forms[f], written);
        for (int rank = 0; rank < 3; rank++) {
            struct shard sh = {.tp = 3, .rank = rank};
            struct weights *w = load(p, 3, rank, &err);
            if (!w)
                fail_msg("%s", err.text);
            assert_int_equal(written[rank].bytes, weights_bytes(&c, &sh));
            assert_true(weights_bytes(&c, &sh) < weights_bytes(&p->config, &sh));
            check_matrix(p, cp, &sh, w, T_KDA_Q, 0, forms[f]);
            check_matrix(p, cp, &sh, w, T_KDA_O, 0, forms[f]);
            check_matrix(p, cp, &sh, w, T_KDA_F_B, 0, forms[f]);
            check_matrix(p, cp, &sh, w, T_LATENT_UP, 1, forms[f]);
            check_matrix(p, cp, &sh, w, T_LM_HEAD, -1, forms[f]);
            for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
                int layer = others[i] == T_EMBED ? -1 : 1;
                assert_int_equal(weights_get(w, others[i], layer)->dtype, K3_BF16);
                assert_null(weights_get(w, others[i], layer)->scale);
            }
            assert_int_equal(written[rank].role[T_KDA_Q].tensors, 1);
            assert_true(quantize_relative(&written[rank].role[T_KDA_Q].error) > 0.01);
            assert_true(quantize_relative(&written[rank].role[T_KDA_Q].error) < 0.0625);
            assert_int_equal(written[rank].role[T_ROUTER].tensors, 0);
            weights_destroy(w);
        }
        clear(state);
    }
    checkpoint_close(cp);
}

static void a_number_that_is_none_is_refused_by_tensor(void **state)
{
    static const uint8_t nan[] = {0xc0, 0x7f};
    const struct place *p = *state;
    struct pack_written written[8];
    struct k3_error err = {""};
    struct checkpoint *cp = checkpoint_open(p->model, &p->config, 0, &err);
    char *path = k3_asprintf("%s/model.safetensors", p->model);

    assert_non_null(cp);
    const struct safetensors_tensor *t =
        safetensors_find(checkpoint_files(cp), "language_model.model.layers.0.self_attn.o_proj.weight");
    assert_non_null(t);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    /* data_offsets count from the end of the header: look for the bytes instead. */
    struct stat st;
    assert_int_equal(fstat(fileno(f), &st), 0);
    uint8_t *file = k3_zalloc((size_t)st.st_size);
    assert_int_equal(fread(file, 1, (size_t)st.st_size, f), (size_t)st.st_size);
    uint8_t *at = memmem(file, (size_t)st.st_size, t->data, 4096);
    assert_non_null(at);
    assert_int_equal(fseek(f, (long)(at - file), SEEK_SET), 0);
    assert_int_equal(fwrite(nan, 1, sizeof nan, f), sizeof nan);
    assert_int_equal(fclose(f), 0);
    checkpoint_close(cp);
    assert_int_equal(pack(p, 2, K3_FP8_E4M3, written, &err), -1);
    assert_non_null(strstr(err.text, "self_attn.o_proj.weight: row 0 has a number that is not finite"));
    clear(state);
    pack_all(p, 2, K3_BF16, written);
    free(file);
    free(path);
}

/* --- stopped and gone on with ------------------------------------------------------------------------------------- */

/* In a process of its own with this fault: how it ended. */
static int pack_with(const struct place *p, int tp, const char *fault, rlim_t file_bytes)
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        struct pack_written written[8];
        struct k3_error err;
        setenv("K3_FAULT", fault, 1);
        fault_init();
        if (file_bytes) {
            signal(SIGXFSZ, SIG_IGN);
            setrlimit(RLIMIT_FSIZE, &(struct rlimit){file_bytes, file_bytes});
        }
        if (pack(p, tp, K3_FP8_E4M3, written, &err) == 0)
            _exit(0);
        _exit(strstr(err.text, "No space left") || strstr(err.text, "File too large") ? 28 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static char *slurp(const char *dir, const char *name, size_t *len)
{
    char *path = k3_asprintf("%s/%s", dir, name), *text;
    FILE *f = fopen(path, "r");
    struct stat st;

    if (!f)
        fail_msg("%s is not there", path);
    assert_int_equal(fstat(fileno(f), &st), 0);
    *len = (size_t)st.st_size;
    text = k3_zalloc(*len + 1);
    assert_int_equal(fread(text, 1, *len, f), *len);
    fclose(f);
    free(path);
    return text;
}

static void one_that_is_killed_goes_on_where_it_was(void **state)
{
    const struct place *p = *state;
    struct pack_written written[8] = {{0}};
    size_t len, again;

    pack_all(p, 2, K3_FP8_E4M3, written);
    char *image = slurp(p->out, "rank1.k3pack", &len), *manifest = slurp(p->out, "rank1.json", &again);
    clear(state);

    assert_int_equal(pack_with(p, 2, "pack-dies:2", 0), -SIGKILL);
    refused(p, 2, 0, "rank0.json: is missing: run k3pack --layout tp=2 --rank 0");
    pack_all(p, 2, K3_FP8_E4M3, written);
    uint64_t kept = written[0].kept + written[1].kept;
    assert_true(kept > 0);

    clear(state);
    assert_int_equal(pack_with(p, 2, "pack-dies-unfinished", 0), -SIGKILL);
    pack_all(p, 2, K3_FP8_E4M3, written);
    assert_int_equal(written[0].kept, written[0].bytes);
    pack_all(p, 2, K3_FP8_E4M3, written); /* all there */
    assert_int_equal(written[1].kept, written[1].bytes);

    char *image2 = slurp(p->out, "rank1.k3pack", &again);
    assert_int_equal(again, len);
    assert_memory_equal(image2, image, len);
    char *manifest2 = slurp(p->out, "rank1.json", &again);
    assert_string_equal(manifest2, manifest);
    free(image);
    free(image2);
    free(manifest);
    free(manifest2);
}

static void a_full_disk_is_said_and_gone_on_from(void **state)
{
    const struct place *p = *state;
    struct pack_written written[8];

    assert_int_equal(pack_with(p, 2, "pack-disk-full:4", 0), 28);
    pack_all(p, 2, K3_FP8_E4M3, written);
    clear(state);
    assert_int_equal(pack_with(p, 2, "", 4096), 28);
    pack_all(p, 2, K3_FP8_E4M3, written);
}

/* --- refused ------------------------------------------------------------------------------------------------------ */

/* Change a byte of a file, or cut it there. */
static void damage(const struct place *p, const char *name, long at, int cut)
{
    char *path = k3_asprintf("%s/%s", p->out, name);
    FILE *f = fopen(path, "r+");

    assert_non_null(f);
    if (cut) {
        assert_int_equal(ftruncate(fileno(f), at), 0);
    } else {
        assert_int_equal(fseek(f, at, SEEK_SET), 0);
        int byte = getc(f);
        assert_int_equal(fseek(f, at, SEEK_SET), 0);
        putc(byte ^ 1, f);
    }
    assert_int_equal(fclose(f), 0);
    free(path);
}

static void a_pack_that_is_damaged_is_refused_and_mended(void **state)
{
    const struct place *p = *state;
    struct pack_written written[8];
    struct k3_error err = {""};

    pack_all(p, 1, K3_BF16, written);
    damage(p, "rank0.k3pack", 1 << 20, 0);
    refused(p, 1, 0, "rank0.k3pack: block 1 (bytes 1048576 to");
    refused(p, 1, 0, "is not what its hash says: k3pack --layout tp=1 --rank 0 mends it");
    struct weights *w = weights_load(p->out, &p->config, &(struct shard){.tp = 1, .rank = 0}, stream,
                                     &(struct weights_loading){.unverified = 1}, &err);
    assert_non_null(w);
    weights_destroy(w);
    pack_all(p, 1, K3_BF16, written);
    w = load(p, 1, 0, &err);
    if (!w)
        fail_msg("%s", err.text);
    weights_destroy(w);

    damage(p, "rank0.k3pack", 100000, 1);
    refused(p, 1, 0, "rank0.k3pack: has 100000 bytes, not ");
    pack_all(p, 1, K3_BF16, written);
    w = load(p, 1, 0, &err);
    assert_non_null(w);
    weights_destroy(w);
}

/* Replace a text of a file by another. */
static void edit(const struct place *p, const char *name, const char *is, const char *shall)
{
    size_t len;
    char *text = slurp(p->out, name, &len), *at = strstr(text, is);

    if (!at)
        fail_msg("%s does not have %s", name, is);
    char *edited = k3_asprintf("%.*s%s%s", (int)(at - text), text, shall, at + strlen(is));
    tree_write(p->out, name, edited, strlen(edited));
    free(edited);
    free(text);
}

static void a_pack_of_something_else_is_refused(void **state)
{
    static const struct {
        const char *file, *is, *shall, *sentence;
    } cases[] = {
        {PACKINFO_NAME, "\"k3pack\"", "\"tar\"", PACKINFO_NAME ": format is not k3pack"},
        {PACKINFO_NAME, "\"version\": 1", "\"version\": 2", "version is 2, and this k3 reads 1"},
        {PACKINFO_NAME, "\"tp\": 2", "\"tp\": 0", "tp is not a number from 1 to 4096"},
        {PACKINFO_NAME, "\"tp\": 2", "\"tp\": 4",
         "layout is tp=4, not tp=2: start 4 ranks with it, or run k3pack --layout tp=2 into another"},
        {PACKINFO_NAME, "\"pp\": 1", "\"pp\": 2", "layout is tp=2,pp=2, not tp=2: start 4 ranks"},
        {PACKINFO_NAME, "\"ep\": 1", "\"ep\": 4", "there is no layout of tp 2, pp 1 and ep 4"},
        {PACKINFO_NAME, "\"bf16\"", "\"int4\"", "dense is not bf16, fp8 or mxfp8"},
        {PACKINFO_NAME, "\"bf16\"", "\"mxfp4\"", "dense is not bf16, fp8 or mxfp8"},
        {PACKINFO_NAME, "\"stamp\": \"", "\"stamp\": \"x", "stamp is not 32 hex digits"},
        {PACKINFO_NAME, "\"bf16\"", "\"fp8\"", "rank0.json: pack is not what k3pack.json says"},
        {PACKINFO_NAME, "{", "[", PACKINFO_NAME},
        {"config.json", "{", "{ ", "model is not the hash of the config.json there"},
        {"rank0.json", "\"rank\": 0", "\"rank\": 1",
         "rank0.json: rank is 1, not 0: k3pack --layout tp=2 --rank 0 writes it"},
        {"rank0.json", "blake2b-128", "md5", "hash is not blake2b-128"},
        {"rank0.json", "\"block_bytes\": 1048576", "\"block_bytes\": 4096", "block_bytes is 4096, not 1048576"},
        {"rank0.json", "\"offset\": 0", "\"offset\": 1",
         "tensor language_model.model.embed_tokens.weight does not lie"},
        {"rank0.json", "\"blocks\": [", "\"blocks\": [\"00\",", "has hashes of"},
        {"rank0.json", "\"blocks\": [\n  \"", "\"blocks\": [\n  \"zz", "the hash of block 0 is not 32 hex digits"},
        {"rank0.json", "\"tensors\": [", "\"tensors\": [{},", "does not lie there"},
        {"rank0.json", "\"tensors\"", "\"sensors\"", "does not lie there"},
    };
    const struct place *p = *state;
    struct pack_written written[8];
    size_t len;

    pack_all(p, 2, K3_BF16, written);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *good = slurp(p->out, cases[i].file, &len);
        edit(p, cases[i].file, cases[i].is, cases[i].shall);
        refused(p, 2, 0, cases[i].sentence);
        tree_write(p->out, cases[i].file, good, len);
        free(good);
    }
    forget(state, "rank1.json");
    refused(p, 2, 1, "rank1.json: is missing: run k3pack --layout tp=2 --rank 1");
}

static void a_directory_keeps_one_layout(void **state)
{
    const struct place *p = *state;
    struct pack_written written[8];
    struct k3_error err = {""};

    pack_all(p, 2, K3_BF16, written);
    assert_int_equal(pack(p, 3, K3_BF16, written, &err), -1);
    assert_non_null(strstr(err.text, "is of another model, layout or form: choose another directory"));
    assert_int_equal(pack(p, 2, K3_MXFP8, written, &err), -1);
    pack_all(p, 2, K3_BF16, written);
    assert_int_equal(written[0].kept, written[0].bytes);
}

static int set_up(void **state)
{
    struct place *p = k3_zalloc(sizeof *p);

    p->model = tree_create();
    p->out = tree_create();
    write_model(p);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;

    tree_remove(p->model);
    tree_remove(p->out);
    free(p->model);
    free(p->out);
    free(p);
    return 0;
}

#define test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_pack_has_the_bits_of_the_checkpoint),      test(dense_matrices_have_the_form_that_was_asked_for),
        test(a_number_that_is_none_is_refused_by_tensor), test(one_that_is_killed_goes_on_where_it_was),
        test(a_full_disk_is_said_and_gone_on_from),       test(a_pack_that_is_damaged_is_refused_and_mended),
        test(a_pack_of_something_else_is_refused),        test(a_directory_keeps_one_layout),
    };
    if (sodium_init() < 0)
        return 1;
    stream = kern_stream_create("ref", 1);
    k3_log_level(LOG_ERR);
    return cmocka_run_group_tests_name("pack", tests, NULL, NULL);
}
