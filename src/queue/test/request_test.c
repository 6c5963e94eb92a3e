/* The life cycle, the answer that grows, and its erasure. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/alloc.h"
#include "common/log.h"
#include "queue/request.h"

static struct request *new_request(void)
{
    struct k3_id id = {{1}};
    struct message_submit submit = {0};

    submit.ask.req.data = (uint8_t *)k3_strdup("a prompt");
    submit.ask.req.len = strlen("a prompt");
    submit.name = k3_strdup("name");
    return request_create(&id, &submit, NULL);
}

static const enum request_event all_events[] = {
    EVENT_LEASED,  EVENT_TAKEN_BACK, EVENT_CANCEL,  EVENT_ENDED,   EVENT_DONE,   EVENT_FAILED,
    EVENT_EXPIRED, EVENT_HOLD,       EVENT_RELEASE, EVENT_SUSPEND, EVENT_RESUME,
};
enum { EVENTS = sizeof all_events / sizeof *all_events };

/* Everything that can happen from `from`, as pairs of event and next state. */
static void check_moves(enum request_state from, const int (*moves)[2], size_t n)
{
    struct request *r = new_request();

    for (size_t e = 0; e < EVENTS; e++) {
        int want = -1;

        for (size_t i = 0; i < n; i++)
            if (moves[i][0] == (int)all_events[e])
                want = moves[i][1];
        r->life.state = from;
        assert_int_equal(request_move(r, all_events[e]), want < 0 ? -1 : 0);
        assert_int_equal(request_state(r), want < 0 ? (int)from : want);
    }
    request_destroy(r);
}

static void test_life(void **state)
{
    static const int queued[][2] = {{EVENT_LEASED, REQUEST_RUNNING},    {EVENT_HOLD, REQUEST_HELD},
                                    {EVENT_SUSPEND, REQUEST_SUSPENDED}, {EVENT_CANCEL, REQUEST_CANCELLED},
                                    {EVENT_FAILED, REQUEST_FAILED},     {EVENT_EXPIRED, REQUEST_EXPIRED}};
    static const int running[][2] = {{EVENT_DONE, REQUEST_DONE},
                                     {EVENT_FAILED, REQUEST_FAILED},
                                     {EVENT_EXPIRED, REQUEST_EXPIRED},
                                     {EVENT_TAKEN_BACK, REQUEST_QUEUED},
                                     {EVENT_CANCEL, REQUEST_ENDING}};
    static const int ending[][2] = {{EVENT_DONE, REQUEST_DONE},
                                    {EVENT_ENDED, REQUEST_CANCELLED},
                                    {EVENT_FAILED, REQUEST_CANCELLED},
                                    {EVENT_EXPIRED, REQUEST_EXPIRED}};

    (void)state;
    check_moves(REQUEST_QUEUED, queued, sizeof queued / sizeof *queued);
    check_moves(REQUEST_RUNNING, running, sizeof running / sizeof *running);
    check_moves(REQUEST_ENDING, ending, sizeof ending / sizeof *ending);
    check_moves(REQUEST_DONE, NULL, 0);
    check_moves(REQUEST_FAILED, NULL, 0);
    check_moves(REQUEST_CANCELLED, NULL, 0);
    check_moves(REQUEST_EXPIRED, NULL, 0);
}

static int append(struct answer *a, uint64_t off, const uint32_t *ids, size_t n, const char *txt)
{
    struct k3_error err;
    struct message_part p = {.ch = CHANNEL_RESPONSE, .txt = {(char *)txt, strlen(txt)}};
    struct message_delta d = {.off = off, .ids = {(uint32_t *)ids, n}, .parts = {&p, p.txt.len > 0}};

    return answer_append(a, &d, &err);
}

static void test_answer_is_contiguous(void **state)
{
    static const uint32_t ids[] = {5, 6, 7, 8};
    struct answer *a = answer_create(1);
    const uint32_t *got;
    size_t n;

    (void)state;
    assert_int_equal(append(a, 1, ids, 1, "x"), -1);
    assert_int_equal(errno, EPROTO);
    assert_int_equal(append(a, 0, ids, 2, "one "), 0);
    assert_int_equal(append(a, 0, ids, 2, "one "), -1);
    assert_int_equal(append(a, 1, ids, 2, "one "), -1);
    assert_int_equal(append(a, 3, ids, 2, "one "), -1);
    assert_int_equal(append(a, 2, ids + 2, 2, ""), 0);
    got = answer_ids(a, &n);
    assert_int_equal(n, 4);
    assert_memory_equal(got, ids, sizeof ids);
    assert_int_equal(answer_pieces(a), 2);
    answer_destroy(a);
}

static void test_answer_from_any_token(void **state)
{
    static const uint32_t ids[] = {5, 6, 7, 8};
    struct answer *a = answer_create(1);

    (void)state;
    append(a, 0, ids, 1, "a");     /* piece 0: token 0 */
    append(a, 1, ids + 1, 2, "b"); /* piece 1: tokens 1 and 2 */
    append(a, 3, ids + 3, 1, "");  /* piece 2: token 3 */
    assert_int_equal(answer_find(a, (uint64_t[]){0}), 0);
    assert_int_equal(answer_find(a, (uint64_t[]){1}), 1);
    assert_int_equal(answer_find(a, (uint64_t[]){2}), 1);
    assert_int_equal(answer_find(a, (uint64_t[]){3}), 2);
    assert_int_equal(answer_find(a, (uint64_t[]){4}), 3);
    assert_int_equal(answer_bytes_from(a, 0), 4 * sizeof *ids + 2);
    assert_int_equal(answer_bytes_from(a, 1), 3 * sizeof *ids + 1);
    assert_int_equal(answer_bytes_from(a, 3), 0);
    answer_destroy(a);
}

static void test_choices_are_kept_apart(void **state)
{
    static const uint32_t ids[] = {50, 51, 52, 53, 54, 55}, want[] = {51, 53, 50, 54, 55, 52};
    static const uint8_t choice[] = {1, 0, 2, 0, 1, 1};
    struct answer *a = answer_create(3);
    struct message_delta d;
    struct k3_error err;
    uint32_t sorted[6];
    size_t length[3] = {0};

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        d = (struct message_delta){.c = choice[i], .off = length[choice[i]]++, .ids = {(uint32_t *)ids + i, 1}};
        assert_int_equal(answer_append(a, &d, &err), 0);
        assert_int_equal(answer_append(a, &d, &err), -1); /* it has that */
    }
    d = (struct message_delta){.c = 3, .ids = {(uint32_t *)ids, 1}};
    assert_int_equal(answer_append(a, &d, &err), -1);
    assert_int_equal(errno, EPROTO);
    assert_int_equal(answer_tokens(a), 6);
    assert_memory_equal(answer_lengths(a), ((uint32_t[]){2, 3, 1}), 3 * sizeof(uint32_t));
    answer_sorted_ids(a, sorted);
    assert_memory_equal(sorted, want, sizeof want);
    answer_piece(a, 4, &d);
    assert_int_equal(d.c, 1);
    assert_int_equal(d.off, 1);
    assert_int_equal(d.ids.v[0], 54);
    assert_int_equal(answer_find(a, (uint64_t[]){0, 1, 0}), 1);
    assert_int_equal(answer_find(a, (uint64_t[]){2, 1, 0}), 2);
    assert_int_equal(answer_find(a, (uint64_t[]){2, 1, 1}), 4);
    assert_int_equal(answer_find(a, (uint64_t[]){2, 3, 1}), 6);
    answer_destroy(a);
}

static void test_pieces_come_back_as_they_were(void **state)
{
    uint32_t ids[] = {5, 6, 7};
    struct message_part parts[] = {{CHANNEL_THINK, {(char *)"so.", 3}, 0, NULL},
                                   {CHANNEL_TOOL, {NULL, 0}, 1, (char *)"get_weather"},
                                   {CHANNEL_TOOL, {(char *)"{\0", 2}, 2, (char *)"f"}};
    uint32_t lpi[] = {5, 9, 6, 6};
    float lpv[] = {-3, -1, -0.5f, -0.5f};
    struct message_delta in[] = {{.ids = {ids, 2}, .parts = {parts, 3}, .lpi = {lpi, 4}, .lpv = {lpv, 4}},
                                 {.off = 2, .ids = {ids + 2, 1}, .lpi = {lpi + 1, 2}, .lpv = {lpv + 1, 2}},
                                 {.off = 3, .ids = {ids, 1}, .parts = {parts, 1}}};
    struct answer *a = answer_create(1);
    struct message_delta d;
    struct k3_error err;

    (void)state;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(answer_append(a, &in[i], &err), 0);
    for (size_t i = 0; i < 3; i++) {
        answer_piece(a, i, &d);
        assert_int_equal(d.off, in[i].off);
        assert_int_equal(d.ids.n, in[i].ids.n);
        assert_memory_equal(d.ids.v, in[i].ids.v, d.ids.n * sizeof *ids);
        assert_int_equal(d.lpi.n, in[i].lpi.n);
        assert_int_equal(d.lpv.n, in[i].lpv.n);
        if (d.lpi.n > 0) {
            assert_memory_equal(d.lpi.v, in[i].lpi.v, d.lpi.n * sizeof *lpi);
            assert_memory_equal(d.lpv.v, in[i].lpv.v, d.lpv.n * sizeof *lpv);
        }
        assert_int_equal(d.parts.n, in[i].parts.n);
        for (size_t k = 0; k < d.parts.n; k++) {
            const struct message_part *p = &d.parts.v[k];
            assert_int_equal(p->ch, parts[k].ch);
            assert_int_equal(p->ti, parts[k].ti);
            assert_int_equal(p->txt.len, parts[k].txt.len);
            assert_memory_equal(p->txt.data, parts[k].txt.data ? parts[k].txt.data : "", p->txt.len);
            assert_string_equal(p->tn ? p->tn : "-", parts[k].tn ? parts[k].tn : "-");
        }
    }
    answer_destroy(a);
}

static void test_answer_is_bounded(void **state)
{
    size_t n = 1 << 18;
    uint32_t *ids = k3_calloc(n, sizeof *ids);
    struct answer *a = answer_create(1);
    uint64_t off;

    (void)state;
    for (off = 0; off + n <= ANSWER_TOKENS; off += n)
        assert_int_equal(append(a, off, ids, n, ""), 0);
    assert_int_equal(append(a, off, ids, 1, ""), -1);
    assert_int_equal(errno, EFBIG);
    assert_int_equal(answer_tokens(a), ANSWER_TOKENS);
    answer_destroy(a);
    free(ids);
}

static void test_erasure(void **state)
{
    static const uint32_t ids[] = {5};
    struct request *r = new_request();

    (void)state;
    append(r->answer, 0, ids, 1, "an answer");
    assert_int_equal(request_prompt_bytes(r), strlen("a prompt"));
    request_erase_prompt(r);
    assert_int_equal(request_prompt_bytes(r), 0);
    assert_null(r->ask.ask.req.data);
    assert_string_equal(r->ask.name, "name");
    request_erase_answer(r);
    assert_null(r->answer);
    request_destroy(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_answer_is_contiguous),
        cmocka_unit_test(test_answer_from_any_token),
        cmocka_unit_test(test_choices_are_kept_apart),
        cmocka_unit_test(test_pieces_come_back_as_they_were),
        cmocka_unit_test(test_answer_is_bounded),
        cmocka_unit_test(test_erasure),
    };

    k3_log_init("request_test", LOG_EMERG);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
