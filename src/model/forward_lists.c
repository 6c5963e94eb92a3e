/* forward_lists.c - a step's lists on their way to a backend with memory of its own */
#include <string.h>

#include "model/forward_private.h"

int forward_send_lists(struct forward *f, const struct forward_step *step)
{
    const struct kern_batch *b = &step->batch;
    size_t seqs = (size_t)b->seqs, width = (size_t)f->limits.slot_pages;
    struct step_lists *l = &f->lists;
    int prompts = 0;

    f->batch = b;
    f->token = step->token;
    f->output = step->output;
    if (kern_is_host(f->s))
        return 0;
    memcpy(l->pos, b->pos, seqs * sizeof *l->pos);
    memcpy(l->begin, b->begin, (seqs + 1) * sizeof *l->begin);
    memcpy(l->slot, b->slot, seqs * sizeof *l->slot);
    for (size_t i = 0; i < seqs; i++) {
        l->prefill[i] = b->prefill ? b->prefill[i] : 0;
        prompts |= l->prefill[i] != 0;
    }
    memcpy(l->token, step->token, (size_t)b->rows * sizeof *l->token);
    memcpy(l->output, step->output, (size_t)step->outputs * sizeof *l->output);
    for (size_t i = 0; i < seqs; i++) {
        int64_t tokens = b->pos[i] + b->begin[i + 1] - b->begin[i];
        size_t used = (size_t)((tokens + f->limits.page_tokens - 1) / f->limits.page_tokens);
        memcpy(l->pages + i * width, b->pages + i * (size_t)b->page_stride, used * sizeof *l->pages);
    }
    f->sent_batch = *b;
    f->sent_batch.begin = f->sent.begin;
    f->sent_batch.slot = f->sent.slot;
    f->sent_batch.pos = f->sent.pos;
    f->sent_batch.prefill = prompts ? f->sent.prefill : NULL;
    f->sent_batch.pages = f->sent.pages;
    f->sent_batch.page_stride = f->limits.slot_pages;
    f->batch = &f->sent_batch;
    f->token = f->sent.token;
    f->output = f->sent.output;
    size_t bytes = (size_t)((char *)(l->pages + seqs * width) - (char *)f->lists_block);
    return kern_copy(f->s, f->sent_block, bytes, f->lists_block, bytes, bytes, 1);
}
