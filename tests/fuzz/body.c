/* body.c - the body of a message whose type is the first byte */
#include "fuzz.h"
#include "round_trip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0) {
        struct message_header head = {.version = WIRE_VERSION, .type = data[0]};
        round_trip(&head, data + 1, size - 1);
    }
    return 0;
}
