// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Stream operations against the oracle of lib_stream.h. The first five bytes choose the limits, the
 * place of the wrap-around and which allocation fails; then five bytes an operation.
 */
#include "../unit/lib_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADER = 5, OPERATION = 5, LEN_MAX = 255 };

static void operate(struct lib_oracle *o, const uint8_t *op, uint32_t ts)
{
	uint64_t off = o->s.next + op[1] + (op[0] & 3u) * 64;
	uint32_t len = op[3], cap = op[0] & 4 ? len : op[4] % (len + 1);

	off -= off < op[2] ? off : op[2];
	switch (op[0] >> 4) {
	case 0:
		tks_stream_advance(&o->s, ts + op[1]);
		break;
	case 1:
		tks_stream_flush(&o->s);
		break;
	case 2:
		tks_stream_end_at(&o->s, o->base + (uint32_t)off);
		break;
	default:
		lib_segment(o, off, len, cap, ts + (op[0] & 8 ? op[4] : 0));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tks_stream_limits limits = { .wait_ns = 20 };
	struct lib_oracle *o;
	size_t i;

	if (size < HEADER)
		return 0;
	limits.buffer_bytes = 1 + 4u * data[0];
	limits.buffer_segments = 1 + data[1] % 32;
	o = lib_oracle_new(0u - 16u * data[2] - data[3], &limits);
	o->mem.fail_at = data[4] % 64;
	o->unreliable = o->mem.fail_at;
	for (i = HEADER; i + OPERATION <= size && o->s.next < LIB_CELLS - 4 * LEN_MAX;
	     i += OPERATION)
		operate(o, data + i, (uint32_t)i);
	lib_oracle_free(o);
	return 0;
}
