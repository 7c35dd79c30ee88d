/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The live table: a line a request, 80 columns. */
#ifndef TKS_TABLE_H
#define TKS_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#include "tokensnoop/request.h"

/* One row, with the head before it if first. 0 or a negative errno. */
int tks_table_row(FILE *out, const struct tks_request *r, bool first);

#endif
