#include "samples.h"

static uint32_t ids[] = {0, 127, 128, 65535, 65536, 163839, UINT32_MAX};
static uint64_t bytes[] = {0, 1, UINT32_MAX, UINT64_MAX};
static float biases[] = {-100, -0.5f, 0, 1e-9f, 2, 99.5f, 100};
static uint32_t logprob_ids[] = {0, 7, 0};
static float logprobs[] = {-0.25f, -0.125f, -9999};
static char *stops[] = {"\n\n", "", "Ende \xe2\x82\xac"};
static uint8_t json[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";

#define LIST(array)                                                                                                    \
    {                                                                                                                  \
        array, sizeof(array) / sizeof *(array)                                                                         \
    }
#define ASK_JSON                                                                                                       \
    {                                                                                                                  \
        .req = {json, sizeof json - 1}, .max = 64, .temp = 0.7, .topp = 0.95, .topk = 40, .sd = true,                  \
        .seed = UINT64_MAX, .stop = LIST(stops), .ieos = true, .minp = 0.05, .rep = 1.1, .pres = -2, .freq = 0.5,      \
        .bi = LIST(ids), .bv = LIST(biases), .lp = 20                                                                  \
    }
#define ASK_TOKENS                                                                                                     \
    {                                                                                                                  \
        .tok = LIST(ids), .temp = 0, .topp = 1                                                                         \
    }
#define ID(n)                                                                                                          \
    {                                                                                                                  \
        {                                                                                                              \
            n, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16                                                      \
        }                                                                                                              \
    }

static struct message_listing_row rows[] = {
    {ID(1), "ada", "thesis", REQUEST_RUNNING, "None", 0, 4711, 10, 20, 30, 1.7e9, 1.7e9 + 0.5},
    {ID(2), "bob", NULL, REQUEST_QUEUED, "Priority", 2, 0, 0, 0, 0, 1.7e9, 0},
};
static struct message_engine engines[] = {
    {4711, "n1", ENGINE_LOADING, "tiny-b", 4, "tp4", 8, 3, 19.5, 1.7e9, LIST(bytes), LIST(bytes)},
    {.job = 1, .state = ENGINE_STARTING},
};
static struct message_part parts[] = {
    {.ch = CHANNEL_THINK, .txt = {"so.", 3}},
    {.ch = CHANNEL_RESPONSE},
    {CHANNEL_TOOL, {"a\0\xc3\xa9", 4}, 1, "get_weather"},
};
static struct message_held held[] = {{.id = ID(3), .n = 17}, {.id = ID(4)}};
static uint8_t cache_key[16] = {1, 0, 255};
static struct message_lease leases[] = {
    {.id = ID(5), .ask = ASK_JSON, .out = LIST(ids), .ckey = {cache_key, sizeof cache_key}},
    {.id = ID(6), .ask = ASK_TOKENS}};
static uint32_t produced[] = {3, 0, 4};
static uint64_t wanted[] = {7, 0, UINT64_MAX};
static struct message_held held_from[] = {{ID(3), 17, LIST(wanted)}, {ID(4), 5, {wanted, 1}}};
static struct message_choice choices[] = {{DONE_STOP, 3}, {DONE_LENGTH, 64}, {DONE_STOP, 0}};
static struct message_lease several[] = {
    {.id = ID(7), .ask = {.tok = LIST(ids), .topp = 1, .n = 3}, .out = LIST(ids), .outn = LIST(produced)},
};

/* clang-format off */
/* Those of version 1 first, as they were recorded of it; what came later has lines of its own behind them, or is blank in
 * version 1. */
static const struct message samples[] = {
    {{0, WIRE_SUBMIT, 0, ID(9)}, .submit = {.ask = ASK_JSON, .watch = true, .name = "thesis"}},
    {{0, WIRE_SUBMIT, 0, ID(9)}, .submit = {.ask = ASK_TOKENS}},
    {{0, WIRE_ATTACH, 0, ID(9)}, .attach = {1ull << 40, {NULL, 0}}},
    {{0, WIRE_CANCEL, 0, ID(9)}, .attach = {0}},
    {{0, WIRE_LIST, 0, ID(0)}, .list = {true, "0aBc"}},
    {{0, WIRE_INFO, 0, ID(0)}, .attach = {0}},
    {{0, WIRE_ACK, 0, ID(9)}, .attach = {0}},
    {{0, WIRE_ACCEPTED, 0, ID(9)}, .accepted = {3, "EngineStarting", "max"}},
    {{0, WIRE_REFUSED, 0, ID(9)}, .refused = {EXIT_CODE_QUOTA, "the queue is full", 30.5}},
    {{0, WIRE_STATE, 0, ID(9)}, .state = {REQUEST_SUSPENDED, 1, "None", 4711, 3}},
    {{0, WIRE_DELTA, 0, ID(9)}, .delta = {0, 99, LIST(ids), LIST(parts), {NULL, 0}, {NULL, 0}}},
    {{0, WIRE_DELTA, 0, ID(9)}, .delta = {0, 0, {ids, 1}, {NULL, 0}, LIST(logprob_ids), LIST(logprobs)}},
    {{0, WIRE_DONE, 0, ID(9)}, .done = {DONE_LENGTH, "as many as asked for", 5, 64, 3, 0.1, 3.4, 0.5, LIST(choices)}},
    {{0, WIRE_LISTING, 0, ID(0)}, .listing = {LIST(rows), true}},
    {{0, WIRE_INFO_REPLY, 0, ID(0)}, .info_reply = {"0.1.0", 86400, 3, 2, "tiny-b", LIST(engines)}},
    {{0, WIRE_OK, 0, ID(9)}, .attach = {0}},
    {{0, WIRE_ENGINE_HELLO, 0, ID(0)}, .engine_hello = {4711, UINT64_MAX, "n1", "tiny-b", 4, "tp4", "0123", 1, 1, LIST(held)}},
    {{0, WIRE_ENGINE_LOAD, 0, ID(0)}, .engine_load = {LIST(bytes), LIST(bytes)}},
    {{0, WIRE_ENGINE_READY, 0, ID(0)}, .engine_ready = {8, 16384, 8}},
    {{0, WIRE_CREDIT, 0, ID(0)}, .credit = {0}},
    {{0, WIRE_HEARTBEAT, 0, ID(0)}, .heartbeat = {19.25, 3, 77}},
    {{0, WIRE_RETURNED, 0, ID(9)}, .attach = {0}},
    {{0, WIRE_ENGINE_BYE, 0, ID(0)}, .engine_bye = {"drained"}},
    {{0, WIRE_ENGINE_LOST, 0, ID(0)}, .engine_lost = {4711, "rank 2 died"}},
    {{0, WIRE_ENGINE_WELCOME, 0, ID(0)}, .engine_welcome = {.ver = 1, .hb = 0.25}},
    {{0, WIRE_BATCH, 7, ID(0)}, .batch = {LIST(leases)}},
    {{0, WIRE_ENGINE_CANCEL, 0, ID(9)}, .attach = {0}},
    {{0, WIRE_DRAIN, 0, ID(0)}, .attach = {0}},
    {{0, WIRE_SUBMIT, 0, ID(9)}, .submit = {.ask = {.tok = LIST(ids), .topp = 1, .n = MESSAGE_CHOICES}}},
    {{0, WIRE_SUBMIT, 0, ID(9)}, .submit = {.ask = {.tok = LIST(ids), .topp = 1}, .dl = 1.8e9}},
    {{0, WIRE_ATTACH, 0, ID(9)}, .attach = {5, LIST(wanted)}},
    {{0, WIRE_ENGINE_HELLO, 0, ID(9)}, .engine_hello = {.job = 4711, .inc = 2, .vmin = 1, .vmax = 2, .held = LIST(held_from)}},
    {{0, WIRE_ENGINE_WELCOME, 0, ID(9)}, .engine_welcome = {.ver = 2, .hb = 0.25, .held = LIST(held_from)}},
    {{0, WIRE_DELTA, 0, ID(9)}, .delta = {2, 0, {ids, 1}, {NULL, 0}, {NULL, 0}, {NULL, 0}}},
    {{0, WIRE_BATCH, 0, ID(0)}, .batch = {LIST(several)}},
    {{0, WIRE_ENGINE_WELCOME, 0, ID(9)}, .engine_welcome = {.ver = 2, .hb = 0.25, .tell = LIST(held_from)}},
    {{0, WIRE_ENGINE_HELD, 0, ID(9)}, .engine_held = {.id = ID(9), .ask = {.tok = LIST(ids), .topp = 1, .n = 2}, .own = 1001, .name = "thesis", .dl = 1.8e9, .sub = 1.7e9, .again = true}},
};
/* clang-format on */

const struct message *message_samples(size_t *count)
{
    *count = sizeof samples / sizeof *samples;
    return samples;
}
