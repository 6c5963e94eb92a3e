#include "common/settings.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/conf.h"

static const char *const log_levels[] = {"err", "warning", "notice", "info", "debug", NULL};
static const char *const autos[] = {"auto", "yes", "no", NULL};
static const char *const yes_no[] = {"yes", "no", NULL};
static const char *const efforts[] = {"low", "medium", "high", "max", NULL};

#define TEXT(section, key, initial, choices, sentence)                                                                 \
    {                                                                                                                  \
#section, #key, CONF_TEXT, offsetof(struct settings, section.key), initial, 0, 0, choices, sentence            \
    }
#define INT(section, key, initial, least, most, sentence)                                                              \
    {                                                                                                                  \
#section, #key, CONF_INT, offsetof(struct settings, section.key), initial, least, most, NULL, sentence         \
    }
#define REAL(section, key, initial, least, most, sentence)                                                             \
    {                                                                                                                  \
#section, #key, CONF_REAL, offsetof(struct settings, section.key), initial, least, most, NULL, sentence        \
    }

static const struct conf_section sections[] = {
    {"common", "What all programs use."},
    {"k3queued", "The queue daemon, on the login node."},
    {"k3served", "The engine, and the batch script that starts it."},
    {"k3submit", "Defaults of k3submit; its environment and command line go before them."},
};

/* clang-format off */
static const struct conf_row rows[] = {
    TEXT(common, socket, "ipc:///run/k3/k3queued.sock", NULL, "Where programs on k3queued's own host reach it: ipc:// and a path."),
    TEXT(common, server, "", NULL, "Where those on other hosts reach it: tcp://HOST:PORT; empty: nowhere.\nPORT may be left out and is 7420.  A program uses common.socket where somebody listens there and common.server everywhere else, so one file serves all hosts."),
    TEXT(common, server_key, "", NULL, "Public key of k3queued, 64 hex digits, or the path of a file that holds it; needed with server.\nk3queued logs it when it starts."),
    TEXT(common, munge_socket, "", NULL, "munged's socket; empty: where libmunge looks by itself."),
    REAL(common, timeout, "10.0", 0.1, 3600, "Seconds that a command waits for k3queued to answer."),
    TEXT(common, log_level, "info", log_levels, "Least severe lines that are logged."),

    TEXT(k3queued, user, "", NULL, "User whose jobs may register as engines; empty: the one k3queued runs as."),
    TEXT(k3queued, listen, "", NULL, "Where it listens for other hosts: tcp://INTERFACE:PORT, or an address in place of the interface; empty: nowhere.\nPORT may be left out and is 7420; an IPv6 address stands in brackets.  What means all interfaces is refused, except for the word: tcp://all-interfaces."),
    TEXT(k3queued, state_dir, "/var/lib/k3", NULL, "Directory of what the daemon keeps: its key."),
    TEXT(k3queued, check_job, "auto", autos, "Ask squeue whether an engine's job is a running one of that user; auto: where squeue is installed."),
    INT(k3queued, max_queued, "10000", 1, 1e6, "Requests that may wait or run."),
    INT(k3queued, max_queued_per_user, "1000", 1, 1e6, "Requests of one user that may wait or run."),
    INT(k3queued, max_queued_mib, "2048", 1, 1 << 20, "MiB that their prompts may fill."),
    INT(k3queued, max_queued_mib_per_user, "512", 1, 1 << 20, "MiB that the prompts of one user's requests may fill."),
    INT(k3queued, max_rate_per_user, "1200", 1, 1e6, "Requests of one user in a minute; so many may come at once."),
    INT(k3queued, max_connections_per_peer, "1024", 1, 1 << 20, "Connections of one user of the daemon's host, or of one other host."),
    INT(k3queued, max_prompt_bytes, "4194304", 1, 4 << 20, "Bytes of one request's prompt, as JSON or four a token id."),
    INT(k3queued, max_prompt_tokens, "1048576", 1, 1 << 20, "Token ids of one request's prompt."),
    INT(k3queued, max_tokens, "0", 0, 1 << 24, "Most tokens that one request may ask for, all its answers together; 0: as many as fit."),
    INT(k3queued, max_choices, "8", 1, 64, "Most answers to one prompt."),
    REAL(k3queued, keep_answer, "3600.0", 0, 1e8, "Seconds an answer is kept when nobody has fetched it."),
    REAL(k3queued, heartbeat, "1.0", 0.01, 3600, "Seconds between heartbeats to an engine."),
    REAL(k3queued, engine_timeout, "10.0", 0.05, 86400, "Seconds of an engine's silence after which its requests go back to the queue."),
    REAL(k3queued, stall_timeout, "120.0", 0.05, 86400, "Seconds without work after which the requests of an engine that is alive go back to the queue."),
    INT(k3queued, max_output, "8388608", 65536, 1 << 30, "Bytes that may wait for one client that does not read."),

    TEXT(k3served, model, "", NULL, "Directory of the checkpoint, or of the packs that k3pack made of it."),
    TEXT(k3served, layout, "", NULL, "How the job's ranks divide the model: tp=N,pp=N,ep=N, what is left out being 1; empty: tp, as many as there are.\ntp ranks share every layer of a stage; the layers are shared out among pp stages, which take turns: more of them hold a larger model and are no faster. A stage's ranks form ep groups, each with some of the experts whole.  The job must have tp times pp ranks."),
    INT(k3served, threads, "1", 1, 1024, "Threads of a rank's CPU backend."),
    TEXT(k3served, backend, "cpu", NULL, "Kernels that compute."),
    TEXT(k3served, nccl_interface, "", NULL, "Network interfaces for NCCL's sockets, as ip link names them, separated by commas; empty: NCCL's choice."),
    TEXT(k3served, nccl_hca, "", NULL, "InfiniBand or RoCE adapters for NCCL, as below /sys/class/infiniband, each NAME or NAME:PORT; empty: NCCL's choice."),
    TEXT(k3served, verify, "yes", yes_no, "Hold what is read of a pack against its hashes."),
    INT(k3served, slots, "8", 1, 4096, "Requests that run at once."),
    INT(k3served, prefix_slots, "16", 0, 4096,
        "Beginnings of prompts that are kept for later requests of the same user; 0: none."),
    INT(k3served, page_tokens, "64", 64, 65536, "Tokens of a page of the attention cache, a multiple of 64."),
    INT(k3served, cache_tokens, "65536", 1, 1 << 30, "Tokens that the attention cache holds in all."),
    INT(k3served, max_context, "16384", 1, 1 << 24, "Longest prompt and answer together, in tokens."),
    INT(k3served, prefill_chunk, "256", 64, 1 << 20, "Prompt tokens of one request in one step, a multiple of 64."),
    INT(k3served, batch_tokens, "512", 1, 1 << 20, "Tokens of one step, at least slots + 64."),
    INT(k3served, memory_floor_mib, "512", 0, 1 << 20,
        "MiB of a host's memory that shall stay available; a rank that sees less ends before the host hangs. 0: none."),
    INT(k3served, restarts, "3", 0, 1000, "Times that the batch script starts a failed engine again in its job."),
    REAL(k3served, restart_delay, "1.0", 0, 3600, "Seconds before it does."),
    REAL(k3served, drain_timeout, "60.0", 0, 86400, "Seconds in which running answers may finish when the job is about to end."),
    REAL(k3served, away_timeout, "600.0", 0, 86400, "Seconds that the engine works on and keeps what it makes while k3queued is away."),
    INT(k3served, keep_mib, "64", 1, 1 << 20, "MiB that this may fill; where it is more, the oldest tokens of an answer are made again."),

    TEXT(k3submit, reasoning_effort, "max", efforts, "How much the model thinks."),
    INT(k3submit, max_tokens, "0", 0, 1 << 24, "Most tokens of the answer; 0: as many as fit."),
    REAL(k3submit, temperature, "1.0", 0, 10, "Sampling temperature; 0: always the likeliest token."),
    REAL(k3submit, top_p, "0.95", 0, 1, "Sample from the likeliest tokens that make up so much of the probability."),
};
/* clang-format on */

const struct conf_table *settings_table(void)
{
    static const struct conf_table table = {sections, sizeof sections / sizeof *sections, rows,
                                            sizeof rows / sizeof *rows};

    return &table;
}

int settings_load(struct settings *s, const char *path, struct k3_error *err)
{
    const char *named = getenv("K3_CONF");

    memset(s, 0, sizeof *s);
    s->conf = conf_create(rows, sizeof rows / sizeof *rows, s);
    if (!path && named && *named)
        path = named;
    if (!path && access(K3_SYSCONFDIR "/k3.conf", F_OK) < 0 && errno == ENOENT)
        return 0;
    if (conf_read(s->conf, path ? path : K3_SYSCONFDIR "/k3.conf", err) == 0)
        return 0;
    settings_clear(s);
    return -1;
}

void settings_clear(struct settings *s)
{
    conf_destroy(s->conf);
    s->conf = NULL;
}

int settings_set(struct settings *s, const char *name, const char *text, const char *origin, struct k3_error *err)
{
    return conf_set(s->conf, name, text, origin, err);
}

char *settings_get(const struct settings *s, const char *name, struct k3_error *err)
{
    return conf_get(s->conf, name, err);
}

void settings_show(const struct settings *s, FILE *out)
{
    conf_show(s->conf, out);
}
