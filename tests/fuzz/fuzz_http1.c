// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * HTTP/1 from a script: steps separated by "@@", each a letter and its text. Q, S: that side sends
 * the text. G, g: so many of Q's, S's bytes are missing. q, s: it ends. M, as the first: entered in
 * the middle.
 *
 * The script is played as it is and byte by byte, with lib_http1.h checking each event. As far as
 * no byte is missing and nothing is refused, both have to report the same.
 */
#include "../unit/lib_http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MEMORY_MAX = 8192, STEPS_MAX = 200 };

struct step {
	char what;
	const uint8_t *text;
	size_t len;
};

static size_t split(const uint8_t *data, size_t size, struct step *steps)
{
	size_t n = 0, i = 0;

	while (i < size && n < STEPS_MAX) {
		struct step *st = &steps[n++];

		st->what = (char)data[i++];
		st->text = data + i;
		while (i < size && !(data[i] == '@' && i + 1 < size && data[i + 1] == '@'))
			i++;
		st->len = (size_t)(data + i - st->text);
		i += 2;
	}
	return n;
}

static uint64_t number(const struct step *st)
{
	uint64_t n = 0;

	for (size_t i = 0; i < st->len && i < 18 && st->text[i] >= '0' && st->text[i] <= '9'; i++)
		n = 10 * n + (uint64_t)(st->text[i] - '0');
	return n;
}

static int send_step(struct lib_h1 *l, enum tks_side side, const struct step *st, bool bytes)
{
	int err = 0;

	if (!bytes)
		return lib_h1_feed(l, side, st->text, st->len);
	for (size_t i = 0; i < st->len; i++)
		err = lib_h1_feed(l, side, st->text + i, 1) ?: err;
	return err;
}

static int play_step(struct lib_h1 *l, const struct step *st, bool bytes)
{
	l->now++;
	switch (st->what) {
	case 'Q':
		return send_step(l, TKS_REQUEST, st, bytes);
	case 'S':
		return send_step(l, TKS_RESPONSE, st, bytes);
	case 'G':
		lib_h1_miss(l, TKS_REQUEST, number(st));
		return 0;
	case 'g':
		lib_h1_miss(l, TKS_RESPONSE, number(st));
		return 0;
	case 'q':
		return lib_h1_eof(l, TKS_REQUEST);
	case 's':
		return lib_h1_eof(l, TKS_RESPONSE);
	case 'M':
		if (l->now == 1)
			tks_http1_mid_stream(l->h);
		return 0;
	}
	return 0;
}

/* The whole script, whatever it says. */
static void play(const struct step *steps, size_t n, bool bytes, uint64_t fail_at)
{
	struct lib_h1 l;

	lib_h1_open(&l);
	l.mem.fail_at = fail_at;
	for (size_t i = 0; i < n; i++) {
		play_step(&l, &steps[i], bytes);
		LIB_H1_CHECK(l.mem.used <= MEMORY_MAX);
		LIB_H1_CHECK(tks_http1_pending(l.h) <= TKS_H1_PIPELINE_MAX);
	}
	lib_h1_close(&l);
	free(l.text);
}

/* Whole and byte by byte, as long as the framing is intact. */
static void compare(const struct step *steps, size_t n)
{
	struct lib_h1 whole, bytes;

	lib_h1_open(&whole);
	lib_h1_open(&bytes);
	for (size_t i = 0; i < n; i++) {
		if (strchr("GgM", steps[i].what) || play_step(&whole, &steps[i], false))
			break;
		LIB_H1_CHECK(!play_step(&bytes, &steps[i], true));
		lib_h1_line(&whole);
		lib_h1_line(&bytes);
		LIB_H1_CHECK(whole.n == bytes.n && !memcmp(whole.text, bytes.text, whole.n));
		/* Looking for a message in what comes behind an end depends on the slices. */
		if (steps[i].what == 'q' || steps[i].what == 's')
			break;
	}
	lib_h1_close(&whole);
	lib_h1_close(&bytes);
	free(whole.text);
	free(bytes.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct step steps[STEPS_MAX];
	size_t n = split(data, size, steps);

	play(steps, n, false, 0);
	play(steps, n, true, 0);
	play(steps, n, false, 2 + size % 8);
	compare(steps, n);
	return 0;
}
