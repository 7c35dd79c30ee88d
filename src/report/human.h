/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Numbers for people. */
#ifndef TKS_HUMAN_H
#define TKS_HUMAN_H

#include <stddef.h>
#include <stdint.h>

enum { TKS_HUMAN = 16 };

/* Nanoseconds as milliseconds with three significant digits ("0.0123", "1.23", "123", "12300"); "-"
 * for NAN and for TKS_NULL given to the second one. buf holds TKS_HUMAN bytes and is returned. */
char *tks_human_ms(double ns, char *buf);
char *tks_human_ms_int(int64_t ns, char *buf);

/* The last width bytes of a text that somebody else chose, safe for a terminal: what is not
 * printable ASCII is '?'; "-" for none. buf holds width + 1 bytes and is returned. */
char *tks_human_text(const char *s, size_t width, char *buf);

#endif
