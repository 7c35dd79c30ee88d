/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The table of dialects: a row each. Where the signs of two are there, the first row wins.
 */
#ifndef TKS_DIALECT_TABLE_H
#define TKS_DIALECT_TABLE_H

#include "dialect.h"

#define TKS_DIALECTS(X)                                                                            \
	X(openai_chat)                                                                             \
	X(openai_completions)

size_t tks_dialect_count(void);
const struct tks_dialect *tks_dialect_at(size_t i);

#endif
