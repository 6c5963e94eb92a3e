/* vocab.c - tiktoken.model, and after a NUL tokenizer_config.json
 *
 * Few inputs hold all 256 single bytes, so one that begins with '+' gets their lines put before it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/alloc.h"
#include "fuzz.h"
#include "text/buf.h"

static void add_single_bytes(struct buf *ranks)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (int c = 0; c < 256; c++) {
        char *line = k3_asprintf("%c%c== %d\n", digits[c >> 2], digits[(c & 3) << 4], c);
        buf_adds(ranks, line);
        free(line);
    }
}

static void check_vocab(const struct vocab *v, const char *text, size_t size)
{
    struct k3_error err = {""};
    struct tokens ids = {0};
    size_t len;

    for (int32_t id = 0; id < vocab_size(v); id++)
        require(vocab_is_control(v, id) ? vocab_name(v, id) && *vocab_name(v, id)
                                        : vocab_bytes(v, id, &len) && len > 0 && len <= VOCAB_TOKEN_BYTES_MAX,
                "id %d is nothing", id);
    require(vocab_encode_raw(v, text, size, &ids, &err) == 0, "%s", err.text);
    char *back = fuzz_spell(v, &ids, &len);
    require(len == size && (size == 0 || memcmp(back, text, size) == 0), "the ids spell another text");
    free(back);
    tokens_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct k3_error err = {""};
    struct buf ranks = {0};

    if (size > 0 && data[0] == '+') {
        fuzz_byte(&in);
        add_single_bytes(&ranks);
    }
    const uint8_t *nul = in.left ? memchr(in.at, 0, in.left) : NULL;
    size_t len = nul ? (size_t)(nul - in.at) : in.left;
    buf_add(&ranks, fuzz_take(&in, &len), len);
    free(fuzz_file("tiktoken.model", ranks.n ? ranks.s : "", ranks.n));
    char *config = fuzz_file("tokenizer_config.json", in.left ? in.at + 1 : in.at, in.left ? in.left - 1 : 0);
    if (!nul)
        unlink(config);
    struct vocab *v = vocab_load(fuzz_dir(), &err);
    if (v)
        check_vocab(v, (const char *)data, size);
    else
        fuzz_require_sentence(&err);
    vocab_destroy(v);
    free(config);
    buf_free(&ranks);
    return 0;
}
