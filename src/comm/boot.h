/* boot.h - how the ranks of a job meet before they can talk: who am I, how many are we, what does each have to say
 *
 * Over PMIx when it started us (srun --mpi=pmix, mpirun), else a rank alone.  Used once, at start: to check that all
 * ranks mean the same job, and to pass the addresses that a faster transport needs.  PMIx stays open until
 * boot_destroy(), so that whoever started the ranks ends all of them when one is lost. */
#ifndef K3_COMM_BOOT_H
#define K3_COMM_BOOT_H

#include <stddef.h>

#include "common/error.h"

struct boot;

struct boot *boot_create(struct k3_error *err);
void boot_destroy(struct boot *b);

int boot_rank(const struct boot *b);
int boot_size(const struct boot *b);
/* The node as the job's manager calls it (under Slurm, NodeName), else the host's name.  Borrowed. */
const char *boot_node(const struct boot *b);

/* Every rank says `bytes` under the key and gets what all said, in rank order; all [size * bytes].  Each exchange of a
 * run needs a key of its own.  Returns -1, naming the rank, when one said nothing or something of another length. */
int boot_exchange(struct boot *b, const char *key, const void *mine, size_t bytes, void *all, struct k3_error *err);

/* End every rank at once with this exit code, leaving `why` to the job's manager; does not return. */
void boot_abort(struct boot *b, int code, const char *why) __attribute__((noreturn));

#endif
