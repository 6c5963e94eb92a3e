/* team.h - a few threads that start a piece of work together and wait for each other at its end
 *
 * They stay between pieces: spinning for the few microseconds that lie between two operations of a step, then asleep.
 */
#ifndef K3_KERNELS_CPU_TEAM_H
#define K3_KERNELS_CPU_TEAM_H

struct cpu_team;

/* threads counts the caller.  NULL with errno set. */
struct cpu_team *cpu_team_create(int threads);
void cpu_team_destroy(struct cpu_team *t);

/* Run fn(arg, 0) here and fn(arg, 1) ... fn(arg, threads - 1) on the others; return when all have.  One caller at a
 * time. */
void cpu_team_run(struct cpu_team *t, void (*fn)(void *arg, int index), void *arg);

#endif
