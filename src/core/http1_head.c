// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * llhttp's callbacks for a head. It pauses at the first line, for a caller that is not sure yet
 * whether this is a head at all, and at the end, whose place it tells only so. What follows the
 * head is never given to llhttp (chunked.h says why).
 *
 * llhttp is set to be lenient: what two real peers agree on is to be followed, not judged.
 */
#include "http1_head.h"

#include <errno.h>
#include <string.h>

static struct tks_headp *headp_of(llhttp_t *parser)
{
	return parser->data;
}

static char lower(char ch)
{
	return ch >= 'A' && ch <= 'Z' ? (char)(ch + 'a' - 'A') : ch;
}

static int on_url(llhttp_t *parser, const char *at, size_t n)
{
	struct tks_headp *p = headp_of(parser);
	size_t room = sizeof(p->head.target) - 1 - p->len;

	if (n > room) {
		n = room;
		p->head.truncated = true;
	}
	memcpy(p->head.target + p->len, at, n);
	p->len += n;
	return 0;
}

static int on_line(llhttp_t *parser)
{
	headp_of(parser)->line = true;
	return parser->http_major == 1 ? HPE_PAUSED : -1;
}

/* A response's first line is over at its status. */
static int on_version(llhttp_t *parser)
{
	return parser->type == HTTP_REQUEST ? on_line(parser) : 0;
}

static int on_field(llhttp_t *parser, const char *at, size_t n)
{
	struct tks_headp *p = headp_of(parser);

	for (size_t i = 0; i < n && p->name_len < sizeof(p->name); i++)
		p->name[p->name_len++] = lower(at[i]);
	return 0;
}

static bool name_is(const struct tks_headp *p, const char *name)
{
	return strlen(name) == p->name_len && !memcmp(p->name, name, p->name_len);
}

static int on_field_complete(llhttp_t *parser)
{
	struct tks_headp *p = headp_of(parser);
	const struct tks_http_field *f;

	p->field = NULL;
	p->len = 0;
	p->value_over = false;
	/* Said twice, by a proxy: llhttp would refuse even the same number. */
	if (name_is(p, "content-length") && (parser->flags & F_CONTENT_LENGTH)) {
		parser->flags &= (uint16_t)~F_CONTENT_LENGTH;
		parser->content_length = 0;
	}
	f = tks_http_field_named(p->name, p->name_len);
	p->name_len = 0;
	/* The first of several counts. */
	if (!f || *tks_http_field_place(&p->head, f))
		return 0;
	if (f->says)
		strncpy(tks_http_field_place(&p->head, f), f->says, f->size - 1);
	else
		p->field = f;
	return 0;
}

static int on_value(llhttp_t *parser, const char *at, size_t n)
{
	struct tks_headp *p = headp_of(parser);
	const struct tks_http_field *f = p->field;

	for (size_t i = 0; f && i < n && !p->value_over; i++) {
		if (f->cut_params && at[i] == ';') {
			p->value_over = true;
		} else if (p->len == f->size - 1) {
			p->value_over = true;
			p->head.truncated = true;
		} else {
			tks_http_field_place(&p->head, f)[p->len++] = f->lower ? lower(at[i])
									       : at[i];
		}
	}
	return 0;
}

static int on_value_complete(llhttp_t *parser)
{
	struct tks_headp *p = headp_of(parser);
	char *value;

	if (!p->field)
		return 0;
	value = tks_http_field_place(&p->head, p->field);
	while (p->len && (value[p->len - 1] == ' ' || value[p->len - 1] == '\t'))
		value[--p->len] = 0;
	p->field = NULL;
	return 0;
}

static int on_headers_complete(llhttp_t *parser)
{
	(void)parser;
	return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
	.on_url = on_url,
	.on_version_complete = on_version,
	.on_status_complete = on_line,
	.on_header_field = on_field,
	.on_header_field_complete = on_field_complete,
	.on_header_value = on_value,
	.on_header_value_complete = on_value_complete,
	.on_headers_complete = on_headers_complete,
};

void tks_headp_start(struct tks_headp *p, enum tks_side side)
{
	memset(p, 0, sizeof(*p));
	p->head.side = side;
	llhttp_init(&p->parser, side == TKS_REQUEST ? HTTP_REQUEST : HTTP_RESPONSE, &settings);
	p->parser.data = p;
	llhttp_set_lenient_headers(&p->parser, 1);
	llhttp_set_lenient_chunked_length(&p->parser, 1);
	llhttp_set_lenient_transfer_encoding(&p->parser, 1);
}

static void finish(struct tks_headp *p)
{
	const llhttp_t *parser = &p->parser;
	struct tks_http_head *h = &p->head;

	h->major = parser->http_major;
	h->minor = parser->http_minor;
	h->keep_alive = llhttp_should_keep_alive(parser);
	h->chunked = parser->flags & F_CHUNKED;
	p->other_coding = !h->chunked && (parser->flags & F_TRANSFER_ENCODING);
	h->content_length = -1;
	/* A transfer coding overrides it (RFC 9112, section 6.3). */
	if ((parser->flags & F_CONTENT_LENGTH) && !(parser->flags & F_TRANSFER_ENCODING))
		h->content_length = parser->content_length > INT64_MAX
					    ? INT64_MAX
					    : (int64_t)parser->content_length;
	if (h->side == TKS_RESPONSE)
		h->status = parser->status_code;
	else
		strncpy(h->method, llhttp_method_name((llhttp_method_t)parser->method),
			sizeof(h->method) - 1);
}

int tks_headp_feed(struct tks_headp *p, const uint8_t *data, size_t len, size_t *used)
{
	llhttp_errno_t err = llhttp_execute(&p->parser, (const char *)data, len);

	*used = len;
	if (err == HPE_OK)
		return TKS_HEADP_MORE;
	if (err != HPE_PAUSED)
		return -EBADMSG;
	*used = (size_t)(llhttp_get_error_pos(&p->parser) - (const char *)data);
	llhttp_resume(&p->parser);
	if (p->line) {
		p->line = false;
		return TKS_HEADP_LINE;
	}
	/* HTTP/0.9 has no version to be seen before. */
	if (p->parser.http_major != 1)
		return -EBADMSG;
	finish(p);
	return TKS_HEADP_DONE;
}

/* --- the first look --- */

/* How much of text and data agrees: 1 text is there, 0 it is not, -EAGAIN data ends in it. */
static int match(const char *text, const uint8_t *data, size_t len)
{
	size_t n = strlen(text);

	if (memcmp(text, data, n < len ? n : len))
		return 0;
	return n <= len ? 1 : -EAGAIN;
}

/* By a pattern in which '9' stands for a digit. */
static int match_digits(const char *pattern, const uint8_t *data, size_t len)
{
	size_t i;

	for (i = 0; i < len && pattern[i]; i++) {
		bool digit = data[i] >= '0' && data[i] <= '9';

		if (pattern[i] == '9' ? !digit : data[i] != (uint8_t)pattern[i])
			return 0;
	}
	return pattern[i] ? -EAGAIN : 1;
}

static int match_method(const uint8_t *data, size_t len, size_t *method_len)
{
	static const char *const methods[] = { "GET ",	   "POST ",  "PUT ",	 "HEAD ", "DELETE ",
					       "OPTIONS ", "PATCH ", "CONNECT ", "TRACE " };
	int best = 0;

	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		int m = match(methods[i], data, len);

		if (m == 1)
			*method_len = strlen(methods[i]);
		if (m)
			best = m;
	}
	return best;
}

static int sniff_request(const uint8_t *data, size_t len)
{
	size_t i = 0, target;
	int m = match_method(data, len, &i);

	if (m != 1)
		return m;
	target = i;
	while (i < len && data[i] > ' ' && data[i] != 0x7f)
		i++;
	if (i == len)
		return -EAGAIN;
	if (i == target)
		return 0;
	m = match_digits(" HTTP/1.9", data + i, len - i);
	i += strlen(" HTTP/1.9");
	if (m != 1 || i >= len)
		return m ? -EAGAIN : 0;
	return data[i] == '\r' || data[i] == '\n';
}

static int sniff_response(const uint8_t *data, size_t len)
{
	static const char line[] = "HTTP/1.9 999";
	int m = match_digits(line, data, len);

	if (m != 1 || len < sizeof(line))
		return m;
	return data[sizeof(line) - 1] == ' ' || data[sizeof(line) - 1] == '\r' ||
	       data[sizeof(line) - 1] == '\n';
}

int tks_http1_sniff(enum tks_side side, const uint8_t *data, size_t len)
{
	while (len && (*data == '\r' || *data == '\n')) {
		data++;
		len--;
	}
	if (!len)
		return -EAGAIN;
	return side == TKS_REQUEST ? sniff_request(data, len) : sniff_response(data, len);
}
