/* modelhash.h - what tells one model from another in few bytes: the hash of its config.json */
#ifndef K3_MODEL_MODELHASH_H
#define K3_MODEL_MODELHASH_H

#include "common/error.h"

enum { MODELHASH_TEXT = 33 }; /* hex digits and the NUL */

/* Of DIR/config.json, as text. */
int modelhash(const char *dir, char text[MODELHASH_TEXT], struct k3_error *err);

#endif
