/* jsondump.h - JSON text, byte for byte as Python's json.dump(value, file, indent=1) writes it */
#ifndef K3_TOOLS_JSONDUMP_H
#define K3_TOOLS_JSONDUMP_H

#include <stdio.h>

#include <jansson.h>

void jsondump(const json_t *value, FILE *out);

#endif
