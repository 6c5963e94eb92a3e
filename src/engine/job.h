/* job.h - which job this process belongs to */
#ifndef K3_ENGINE_JOB_H
#define K3_ENGINE_JOB_H

#include <stdint.h>

/* SLURM_JOB_ID; outside Slurm the process's id, so that two engines on one machine are told apart. */
uint32_t job_id(void);

#endif
