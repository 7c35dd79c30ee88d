// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The JSON field scanner. A schema is a trie of path parts; the scanner carries, for each open
 * object and array, the trie node it is at (or none), so that matching a key is a look among that
 * node's few children, and everything below an unmatched key is stepped over. Strings nobody asked
 * for are skipped eight bytes at a time.
 */
#include "jscan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = 0xffff, NODES_MAX = 1024, NUM_MAX = 48 };

struct node {
	const char *key; /* not terminated; points into the caller's path */
	uint16_t len;
	uint16_t child, next; /* members, and siblings among them; NONE: no more */
	uint16_t elem; /* what each element of an array here is */
	uint16_t id, flags;
};

struct tks_jschema {
	uint16_t n;
	struct node nodes[];
};

enum state {
	S_VALUE = 0,
	S_VALUE_OR_END, /* behind '[' */
	S_KEY_OR_END, /* behind '{' */
	S_KEY, /* behind ',' in an object */
	S_COLON,
	S_COMMA_OR_END,
	S_STRING,
	S_NUMBER,
	S_LITERAL,
	S_DEEP, /* below the depth that is kept: counts brackets */
	S_DEEP_STRING,
	S_DONE,
	S_BAD,
};

struct level {
	uint16_t node;
	bool array;
	uint32_t count; /* members or elements that ended */
};

struct tks_jscan {
	const struct tks_jschema *schema;
	tks_jvalue_fn fn;
	void *ctx;
	uint8_t state;
	bool is_key; /* the string under way */
	bool escape; /* behind a backslash */
	uint8_t hex_left; /* digits of \uXXXX to come */
	uint16_t hex, high; /* the code unit; a first surrogate waiting for its second */
	uint16_t node; /* of the value that comes or is under way; NONE: nobody asked */
	uint32_t depth;
	uint64_t deep;
	uint64_t bytes; /* of the string */
	uint16_t len; /* in text */
	bool truncated;
	uint8_t num_len;
	const char *literal; /* rest to match */
	enum tks_jtype literal_type;
	struct level levels[TKS_JS_DEPTH_MAX];
	char text[TKS_JS_STR_MAX]; /* key, kept string */
	char num[NUM_MAX];
};

/* --- schema --- */

static uint16_t node_new(struct tks_jschema *s, const char *key, size_t len)
{
	if (s->n == NODES_MAX)
		return NONE;
	s->nodes[s->n] = (struct node){
		.key = key, .len = (uint16_t)len, .child = NONE, .next = NONE, .elem = NONE
	};
	return s->n++;
}

static uint16_t child_of(const struct tks_jschema *s, uint16_t at, const char *key, size_t len)
{
	uint16_t i = s->nodes[at].child;

	while (i != NONE && (s->nodes[i].len != len || memcmp(s->nodes[i].key, key, len)))
		i = s->nodes[i].next;
	return i;
}

static uint16_t step_member(struct tks_jschema *s, uint16_t at, const char *key, size_t len)
{
	uint16_t i = child_of(s, at, key, len);

	if (i != NONE || !len || len > TKS_JS_KEY_MAX)
		return i;
	i = node_new(s, key, len);
	if (i == NONE)
		return NONE;
	s->nodes[i].next = s->nodes[at].child;
	s->nodes[at].child = i;
	return i;
}

static uint16_t step_element(struct tks_jschema *s, uint16_t at)
{
	if (s->nodes[at].elem == NONE)
		s->nodes[at].elem = node_new(s, "", 0);
	return s->nodes[at].elem;
}

static uint16_t walk_path(struct tks_jschema *s, const char *path)
{
	uint16_t at = 0;

	while (*path && at != NONE) {
		size_t len = strcspn(path, ".[");

		if (!len && *path != '[')
			return NONE;
		if (len)
			at = step_member(s, at, path, len);
		path += len;
		while (at != NONE && !strncmp(path, "[]", 2)) {
			at = step_element(s, at);
			path += 2;
		}
		if (*path == '.' && path[1])
			path++;
		else if (*path)
			return NONE;
	}
	return at;
}

struct tks_jschema *tks_jschema_new(const struct tks_jfield *fields, size_t n)
{
	struct tks_jschema *s, *fit;

	if (n > TKS_JS_FIELDS_MAX)
		return NULL;
	s = malloc(sizeof(*s) + NODES_MAX * sizeof(struct node));
	if (!s)
		return NULL;
	s->n = 0;
	node_new(s, "", 0);
	for (size_t i = 0; i < n; i++) {
		uint16_t at = walk_path(s, fields[i].path);

		if (at == NONE || s->nodes[at].id) {
			free(s);
			return NULL;
		}
		s->nodes[at].id = fields[i].id;
		s->nodes[at].flags = fields[i].flags;
	}
	fit = realloc(s, sizeof(*s) + s->n * sizeof(struct node));
	return fit ? fit : s;
}

void tks_jschema_free(struct tks_jschema *s)
{
	free(s);
}

/* --- state --- */

size_t tks_jscan_size(void)
{
	return sizeof(struct tks_jscan);
}

void tks_jscan_init(struct tks_jscan *j, const struct tks_jschema *s, tks_jvalue_fn fn, void *ctx)
{
	j->schema = s;
	j->fn = fn;
	j->ctx = ctx;
	tks_jscan_reset(j);
}

void tks_jscan_reset(struct tks_jscan *j)
{
	j->state = S_VALUE;
	j->node = 0;
	j->depth = 0;
	j->deep = 0;
}

/* --- reporting --- */

static uint32_t element_index(const struct tks_jscan *j)
{
	for (uint32_t d = j->depth; d > 0; d--) {
		if (j->levels[d - 1].array && j->levels[d - 1].node != NONE)
			return j->levels[d - 1].count;
	}
	return 0;
}

static void report(struct tks_jscan *j, uint16_t node, struct tks_jvalue *v)
{
	if (node == NONE || !j->schema->nodes[node].id)
		return;
	v->id = j->schema->nodes[node].id;
	v->elem = element_index(j);
	j->fn(j->ctx, v);
}

/* A value ended: on to what follows it. */
static void after_value(struct tks_jscan *j)
{
	if (!j->depth) {
		j->state = S_DONE;
		return;
	}
	j->levels[j->depth - 1].count++;
	j->state = S_COMMA_OR_END;
}

static void open_level(struct tks_jscan *j, bool array)
{
	struct tks_jvalue v = { .type = array ? TKS_JS_ARRAY_BEGIN : TKS_JS_OBJECT_BEGIN };

	if (j->depth == TKS_JS_DEPTH_MAX) {
		j->deep = 1;
		j->state = S_DEEP;
		return;
	}
	if (j->node != NONE && (j->schema->nodes[j->node].flags & TKS_JF_BEGIN))
		report(j, j->node, &v);
	j->levels[j->depth++] = (struct level){ .node = j->node, .array = array };
	j->state = array ? S_VALUE_OR_END : S_KEY_OR_END;
}

static void close_level(struct tks_jscan *j, bool array)
{
	const struct level *l = &j->levels[j->depth - 1];
	struct tks_jvalue v = { .type = array ? TKS_JS_ARRAY : TKS_JS_OBJECT, .count = l->count };

	if (l->array != array) {
		j->state = S_BAD;
		return;
	}
	j->depth--;
	report(j, l->node, &v);
	after_value(j);
}

/* The node of the next element of the innermost array. */
static void next_element(struct tks_jscan *j)
{
	uint16_t at = j->levels[j->depth - 1].node;

	j->node = at == NONE ? NONE : j->schema->nodes[at].elem;
}

/* --- strings --- */

static void begin_string(struct tks_jscan *j, bool is_key)
{
	j->is_key = is_key;
	j->escape = false;
	j->hex_left = 0;
	j->high = 0;
	j->bytes = 0;
	j->len = 0;
	j->truncated = false;
	j->state = S_STRING;
}

/* Where decoded text goes at most; 0: nobody wants it. */
static uint16_t text_room(const struct tks_jscan *j)
{
	if (j->is_key)
		return j->levels[j->depth - 1].node == NONE ? 0 : TKS_JS_KEY_MAX;
	if (j->node == NONE || !(j->schema->nodes[j->node].flags & TKS_JF_KEEP))
		return 0;
	return TKS_JS_STR_MAX;
}

static bool wants_parts(const struct tks_jscan *j)
{
	return !j->is_key && (j->schema->nodes[j->node].flags & TKS_JF_PARTS);
}

/* The text so far is full, and what has no end is wanted. */
static void report_part(struct tks_jscan *j)
{
	struct tks_jvalue v = { .type = TKS_JS_STRING_PART, .str = j->text, .len = TKS_JS_STR_MAX };

	report(j, j->node, &v);
	j->len = 0;
}

static void put(struct tks_jscan *j, const char *s, size_t n)
{
	uint16_t room = text_room(j);

	if (!room)
		return;
	while (wants_parts(j) && n > (size_t)(room - j->len)) {
		size_t k = room - j->len;

		memcpy(j->text + j->len, s, k);
		s += k;
		n -= k;
		report_part(j);
	}
	if (n > (size_t)(room - j->len)) {
		n = room - j->len;
		j->truncated = true;
	}
	memcpy(j->text + j->len, s, n);
	j->len += (uint16_t)n;
}

static void put_code(struct tks_jscan *j, uint32_t c)
{
	char u[4];
	size_t n;

	if (c < 0x80) {
		u[0] = (char)c;
		n = 1;
	} else if (c < 0x800) {
		u[0] = (char)(0xc0 | c >> 6);
		u[1] = (char)(0x80 | (c & 63));
		n = 2;
	} else if (c < 0x10000) {
		u[0] = (char)(0xe0 | c >> 12);
		u[1] = (char)(0x80 | (c >> 6 & 63));
		u[2] = (char)(0x80 | (c & 63));
		n = 3;
	} else {
		u[0] = (char)(0xf0 | c >> 18);
		u[1] = (char)(0x80 | (c >> 12 & 63));
		u[2] = (char)(0x80 | (c >> 6 & 63));
		u[3] = (char)(0x80 | (c & 63));
		n = 4;
	}
	put(j, u, n);
}

/* A first surrogate whose second does not come. */
static void flush_high(struct tks_jscan *j)
{
	if (j->high)
		put_code(j, 0xfffd);
	j->high = 0;
}

static void end_unit(struct tks_jscan *j)
{
	uint16_t c = j->hex;

	if (c >= 0xdc00 && c < 0xe000 && j->high) {
		put_code(j, 0x10000 + ((uint32_t)(j->high - 0xd800) << 10) + (c - 0xdc00u));
		j->high = 0;
		return;
	}
	flush_high(j);
	if (c >= 0xd800 && c < 0xdc00)
		j->high = c;
	else
		put_code(j, c >= 0xdc00 && c < 0xe000 ? 0xfffd : c);
}

static void hex_digit(struct tks_jscan *j, uint8_t c)
{
	uint8_t v = c <= '9' ? c - '0' : (c | 32) - 'a' + 10;

	if (!((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f'))) {
		j->state = S_BAD;
		return;
	}
	j->hex = (uint16_t)(j->hex << 4 | v);
	if (!--j->hex_left)
		end_unit(j);
}

static void escaped(struct tks_jscan *j, uint8_t c)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *p = memchr(from, c, sizeof(from) - 1);

	j->escape = false;
	if (c == 'u') {
		j->hex_left = 4;
		j->hex = 0;
		return;
	}
	flush_high(j);
	if (!p)
		j->state = S_BAD;
	else
		put(j, &to[p - from], 1);
}

static void end_string(struct tks_jscan *j)
{
	struct tks_jvalue v = { .type = TKS_JS_STRING, .bytes = j->bytes };

	flush_high(j);
	if (j->is_key) {
		uint16_t at = j->levels[j->depth - 1].node;

		j->node = at == NONE || j->truncated ? NONE
						     : child_of(j->schema, at, j->text, j->len);
		j->state = S_COLON;
		return;
	}
	if (text_room(j)) {
		v.str = j->text;
		v.len = j->len;
		v.truncated = j->truncated;
	}
	report(j, j->node, &v);
	after_value(j);
}

/* Bytes up to the next quote or backslash. A byte is zero in (x ^ pattern) where it is the pattern
 * (Mycroft's test; a false hit behind a true one does no harm, the first is what counts). */
static size_t plain_run(const uint8_t *p, size_t n)
{
	const uint64_t ones = 0x0101010101010101ull, highs = 0x8080808080808080ull;
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		uint64_t x, q, b;

		memcpy(&x, p + i, 8);
		q = x ^ ones * '"';
		b = x ^ ones * '\\';
		if (((q - ones) & ~q & highs) | ((b - ones) & ~b & highs))
			break;
	}
	while (i < n && p[i] != '"' && p[i] != '\\')
		i++;
	return i;
}

/* Consumes from the string under way; the number of bytes. */
static size_t scan_string(struct tks_jscan *j, const uint8_t *p, size_t n)
{
	size_t run;

	if (j->hex_left || j->escape) {
		j->bytes++;
		if (j->hex_left)
			hex_digit(j, *p);
		else
			escaped(j, *p);
		return 1;
	}
	run = plain_run(p, n);
	if (run) {
		flush_high(j);
		put(j, (const char *)p, run);
		j->bytes += run;
		return run;
	}
	if (*p == '\\') {
		j->escape = true;
		j->bytes++;
	} else {
		end_string(j);
	}
	return 1;
}

/* --- numbers and literals --- */

static bool in_number(uint8_t c)
{
	return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* Digits with a sign, saturated; false when it is not a plain integer. */
static bool plain_integer(const char *s, int64_t *out)
{
	bool minus = *s == '-';
	int64_t v = 0;

	for (s += minus; *s; s++) {
		if (*s < '0' || *s > '9')
			return false;
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *s - '0', &v))
			v = INT64_MAX;
		if (v == INT64_MAX)
			break;
	}
	*out = minus ? -v : v;
	return true;
}

static void end_number(struct tks_jscan *j)
{
	struct tks_jvalue v = { .type = TKS_JS_NUMBER };
	char *end;

	j->num[j->num_len] = 0;
	v.num = strtod(j->num, &end);
	if (*end || end == j->num) {
		j->state = S_BAD;
		return;
	}
	if (!plain_integer(j->num, &v.inum))
		v.inum = v.num >= 9.2e18    ? INT64_MAX
			 : v.num <= -9.2e18 ? -INT64_MAX
					    : (int64_t)v.num;
	report(j, j->node, &v);
	after_value(j);
}

static size_t scan_number(struct tks_jscan *j, const uint8_t *p, size_t n)
{
	size_t i = 0;

	for (; i < n && in_number(p[i]); i++) {
		if (j->num_len == NUM_MAX - 1) {
			/* More digits than any number needs. */
			j->state = S_BAD;
			return i;
		}
		j->num[j->num_len++] = (char)p[i];
	}
	if (i < n)
		end_number(j);
	return i;
}

static size_t scan_literal(struct tks_jscan *j, const uint8_t *p)
{
	struct tks_jvalue v = { .type = j->literal_type };

	if (*p != (uint8_t)*j->literal) {
		j->state = S_BAD;
		return 1;
	}
	if (!*++j->literal) {
		report(j, j->node, &v);
		after_value(j);
	}
	return 1;
}

static void begin_literal(struct tks_jscan *j, const char *rest, enum tks_jtype type)
{
	j->literal = rest;
	j->literal_type = type;
	j->state = S_LITERAL;
}

/* --- structure --- */

static bool space(uint8_t c)
{
	return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static void begin_value(struct tks_jscan *j, uint8_t c)
{
	switch (c) {
	case '{':
	case '[':
		open_level(j, c == '[');
		break;
	case '"':
		begin_string(j, false);
		break;
	case 't':
		begin_literal(j, "rue", TKS_JS_TRUE);
		break;
	case 'f':
		begin_literal(j, "alse", TKS_JS_FALSE);
		break;
	case 'n':
		begin_literal(j, "ull", TKS_JS_NULL);
		break;
	default:
		if (c != '-' && (c < '0' || c > '9')) {
			j->state = S_BAD;
			break;
		}
		j->num[0] = (char)c;
		j->num_len = 1;
		j->state = S_NUMBER;
	}
}

static void comma_or_end(struct tks_jscan *j, uint8_t c)
{
	bool array = j->levels[j->depth - 1].array;

	if (c == '}' || c == ']') {
		close_level(j, c == ']');
	} else if (c != ',') {
		j->state = S_BAD;
	} else if (array) {
		next_element(j);
		j->state = S_VALUE;
	} else {
		j->state = S_KEY;
	}
}

static void structural(struct tks_jscan *j, uint8_t c)
{
	if (space(c))
		return;
	switch (j->state) {
	case S_VALUE_OR_END:
		if (c == ']') {
			close_level(j, true);
			return;
		}
		next_element(j);
		begin_value(j, c);
		return;
	case S_VALUE:
		begin_value(j, c);
		return;
	case S_KEY_OR_END:
		if (c == '}') {
			close_level(j, false);
			return;
		}
		/* fallthrough */
	case S_KEY:
		if (c == '"')
			begin_string(j, true);
		else
			j->state = S_BAD;
		return;
	case S_COLON:
		j->state = c == ':' ? S_VALUE : S_BAD;
		return;
	default:
		comma_or_end(j, c);
	}
}

static void deep(struct tks_jscan *j, uint8_t c)
{
	if (c == '"') {
		j->state = S_DEEP_STRING;
		j->escape = false;
	} else if (c == '{' || c == '[') {
		j->deep++;
	} else if ((c == '}' || c == ']') && !--j->deep) {
		after_value(j);
	}
}

static void deep_string(struct tks_jscan *j, uint8_t c)
{
	if (j->escape)
		j->escape = false;
	else if (c == '\\')
		j->escape = true;
	else if (c == '"')
		j->state = S_DEEP;
}

static size_t scan_some(struct tks_jscan *j, const uint8_t *p, size_t n)
{
	switch (j->state) {
	case S_STRING:
		return scan_string(j, p, n);
	case S_NUMBER:
		return scan_number(j, p, n);
	case S_LITERAL:
		return scan_literal(j, p);
	case S_DEEP:
		deep(j, *p);
		return 1;
	case S_DEEP_STRING:
		deep_string(j, *p);
		return 1;
	default:
		structural(j, *p);
		return 1;
	}
}

enum tks_jstatus tks_jscan_feed(struct tks_jscan *j, const void *data, size_t n, size_t *used)
{
	const uint8_t *p = data;
	size_t i = 0;

	while (i < n && j->state < S_DONE)
		i += scan_some(j, p + i, n - i);
	while (i < n && j->state == S_DONE && space(p[i]))
		i++;
	if (used)
		*used = i;
	if (j->state == S_BAD)
		return TKS_JS_BAD;
	return j->state == S_DONE ? TKS_JS_DONE : TKS_JS_MORE;
}

enum tks_jstatus tks_jscan_end(struct tks_jscan *j)
{
	if (j->state == S_NUMBER && !j->depth)
		end_number(j);
	if (j->state != S_DONE)
		j->state = S_BAD;
	return j->state == S_DONE ? TKS_JS_DONE : TKS_JS_BAD;
}
