/* chat.c - a chat request: what users write never becomes a control token, and nothing is lost on the way */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "text/buf.h"
#include "text/chat.h"

static void check_tokens(const struct chat_prompt *p, size_t controls)
{
    const struct vocab *v = fuzz_vocab();
    struct k3_error err = {""};
    struct tokens ids = {0};
    size_t len, want_len, found = 0;
    const char *want = chat_text(p, &want_len);

    require(chat_tokens(p, v, &ids, &err) == 0, "rendered, but not encoded: %s", err.text);
    for (size_t i = 0; i < ids.n; i++)
        found += vocab_is_control(v, ids.id[i]);
    require(found == controls, "%zu control segments, %zu control ids", controls, found);
    char *text = fuzz_spell(v, &ids, &len);
    require(len == want_len && memcmp(text, want, len) == 0, "the ids spell another prompt:\n%s", text);
    free(text);
    tokens_free(&ids);
}

static void check_prompt(const struct chat_prompt *p)
{
    struct buf joined = {0};
    size_t controls = 0, len;
    const char *text = chat_text(p, &len);

    for (size_t i = 0; i < chat_segments(p); i++) {
        struct chat_segment s = chat_segment(p, i);
        controls += s.control;
        buf_add(&joined, s.text, s.len);
    }
    require(joined.n == len && (len == 0 || memcmp(joined.s, text, len) == 0), "the segments are not the text");
    buf_free(&joined);
    check_tokens(p, controls);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct k3_error err = {""};
    struct chat_prompt *p = chat_render((const char *)data, size, &err);

    if (p)
        check_prompt(p);
    else
        fuzz_require_sentence(&err);
    chat_destroy(p);
    return 0;
}
