#include "engine/job.h"

#include <stdlib.h>
#include <unistd.h>

uint32_t job_id(void)
{
    const char *id = getenv("SLURM_JOB_ID");
    unsigned long n = id ? strtoul(id, NULL, 10) : 0;

    return n > 0 && n <= UINT32_MAX ? (uint32_t)n : (uint32_t)getpid();
}
