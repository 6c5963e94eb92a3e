/* frame.c - header and body, as they arrive */
#include "fuzz.h"
#include "round_trip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t header = size < MESSAGE_HEADER ? size : MESSAGE_HEADER;
    struct message_header head;
    struct k3_error err = {""};

    if (message_decode_header(&head, data, header, &err) == 0)
        round_trip(&head, data + header, size - header);
    else
        fuzz_require_sentence(&err);
    return 0;
}
