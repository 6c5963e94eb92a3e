/* tree.h - what the tests of this directory share: a scratch directory, the configs of etc/models, a very small model
 */
#ifndef K3_MODEL_TEST_TREE_H
#define K3_MODEL_TEST_TREE_H

#include "model/config.h"

/* A config smaller than any in etc/models: two layers (KDA and dense, MLA and experts), about 2 MB. */
extern const char small_config[];

/* A fresh directory below TMPDIR; free() the name after tree_remove(). */
char *tree_create(void);
/* Removes the directory and the files in it. */
void tree_remove(char *dir);
/* Write a file of that directory. */
void tree_write(const char *dir, const char *name, const void *data, size_t len);
/* The text of etc/models/NAME; the caller frees. */
char *tree_model(const char *name);
/* ... parsed. */
void tree_config(const char *name, struct k3_config *c);

#endif
