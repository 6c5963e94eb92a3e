/* settings.h - every setting of every program
 *
 * They live in one file, k3.conf, a section a program.  Every program reads and checks the whole file, so a mistake is
 * found by whoever starts first.  Order: built in, file, environment (k3submit only), command line. */
#ifndef K3_COMMON_SETTINGS_H
#define K3_COMMON_SETTINGS_H

#include <stdio.h>

#include "common/conf.h"
#include "common/error.h"

/* Texts are owned by the struct. */
struct settings {
    struct {
        char *socket;       /* ipc endpoint on k3queued's host */
        char *server;       /* tcp endpoint for other hosts; "": none */
        char *server_key;   /* k3queued's public key: hex digits, or the file's path */
        char *munge_socket; /* "": libmunge's default */
        double timeout;     /* seconds that a command waits for the daemon */
        char *log_level;    /* k3_log_parse_level() knows it */
    } common;
    struct {
        char *user;      /* "": the daemon's own */
        char *listen;    /* tcp endpoint; "": none */
        char *state_dir; /* directory */
        char *check_job; /* "auto", "yes", "no" */
        int max_queued, max_queued_per_user;
        int max_queued_mib, max_queued_mib_per_user;
        int max_rate_per_user; /* requests a minute */
        int max_connections_per_peer;
        int max_prompt_bytes, max_prompt_tokens;
        int max_tokens; /* 0: as many as fit */
        int max_choices;
        double keep_answer, heartbeat, engine_timeout, stall_timeout; /* seconds */
        int max_output;                                               /* bytes */
    } k3queued;
    struct {
        char *model;  /* directory; "": none */
        char *layout; /* layout.h; "": tp = all ranks */
        int threads;
        char *backend;
        char *nccl_interface, *nccl_hca; /* names, separated by commas; "": NCCL's choice */
        char *verify; /* "yes", "no" */
        int slots, prefix_slots;
        int page_tokens, cache_tokens, max_context, prefill_chunk, batch_tokens;
        int memory_floor_mib;
        int restarts;
        double restart_delay, drain_timeout, away_timeout; /* seconds */
        int keep_mib;
    } k3served;
    struct {
        char *reasoning_effort;
        int max_tokens; /* 0: as many as fit */
        double temperature, top_p;
    } k3submit;
    struct conf *conf; /* the rows, and where each value came from */
};

/* Its rows. */
const struct conf_table *settings_table(void);

/* Defaults, then the file: path, or K3_CONF, or sysconfdir/k3/k3.conf.  Only the last may be missing.  On failure there
 * is nothing to clear. */
int settings_load(struct settings *s, const char *path, struct k3_error *err);
void settings_clear(struct settings *s);

/* Set "section.key" from what a person typed; origin: "--temperature", "K3SUBMIT_TEMPERATURE". */
int settings_set(struct settings *s, const char *name, const char *text, const char *origin, struct k3_error *err);

/* --get section.key: the value as text, to be freed; NULL when there is no such setting. */
char *settings_get(const struct settings *s, const char *name, struct k3_error *err);

/* --show-config: all of it in k3.conf's syntax, with where each value came from. */
void settings_show(const struct settings *s, FILE *out);

#endif
