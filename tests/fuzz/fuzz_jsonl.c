// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Fuzzes reading records back. Oracle: a line that is read, written and read again is written the
 * same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fields.h"
#include "tokensnoop/report.h"

static char *write_record(const struct tks_request *q, size_t *len)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, len);
	struct tks_jsonw w;

	tks_jsonw_init(&w, f);
	tks_fields_write(&w, q, true);
	fclose(f);
	return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tks_mem mem = TKS_MEM_INIT(64 << 20);
	struct tks_jsonl_reader *r = tks_jsonl_reader_new(&mem);
	struct tks_request q;
	char *first, *second;
	size_t n1, n2;

	if (!r)
		abort();
	if (!tks_jsonl_read(r, (const char *)data, size, &q)) {
		first = write_record(&q, &n1);
		if (tks_jsonl_read(r, first, n1, &q))
			abort();
		second = write_record(&q, &n2);
		if (n1 != n2 || memcmp(first, second, n1))
			abort();
		free(first);
		free(second);
	}
	tks_jsonl_reader_free(r);
	if (mem.used)
		abort();
	return 0;
}
