/* samples.h - one message of every type with every field set, for the tests */
#ifndef K3_WIRE_TEST_SAMPLES_H
#define K3_WIRE_TEST_SAMPLES_H

#include "wire/message.h"

/* The messages borrow static data: nothing to clear.  The count goes to *count. */
const struct message *message_samples(size_t *count);

#endif
