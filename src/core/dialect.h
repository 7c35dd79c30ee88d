/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Dialects: how a family of servers writes down tokens, counts, ends and errors. A dialect is a
 * file with a struct tks_dialect and a row in the table of dialect.c.
 *
 * The decoder cuts a body into documents (the data of an event, a line, an element of an array, a
 * message) and calls for each: begin, then value (or pvalue) for each field of the dialect's table
 * that is there, in the order of the bytes, then end. In end the dialect says what the document
 * proves with the calls of reqstate.h; the frame's time is the decoder's business.
 */
#ifndef TKS_DIALECT_H
#define TKS_DIALECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "decoder.h"
#include "jscan.h"
#include "pscan.h"
#include "reqstate.h"

struct tks_dialect;

/* Room for a dialect's own state of one body; zeroed at its beginning. */
enum { TKS_DIALECT_STATE = 512 };

/* What a dialect's callbacks work with. */
struct tks_dialect_ctx {
	const struct tks_dialect *dialect;
	struct tks_reqstate *rs; /* of the answer this document belongs to */
	struct tks_request *rec; /* rs's record */
	const struct tks_ask *ask; /* never NULL; empty when the request was not seen */
	const char *server_header; /* "" : none */
	const char *target; /* the request's, "" where not seen */
	bool get; /* the request was a GET */
	/* The event's name (SSE), or the message's type (AWS); "" where it has none. In an SSE
	 * frame it may be written behind the data: only end() can rely on it. */
	const char *event;
	bool streamed; /* the body is a stream of frames, not one document */
	/* Set by the dialect: what is answered here is not a generation (a model was loaded, an old
	 * answer is sent again): no record. */
	bool not_generated;
	/* Set by the dialect in end(): the answer is over with this document though the stream goes
	 * on. Only where several share it. */
	bool answer_over;
	const struct tks_decoder_host *host;
	void *host_ctx;
	_Alignas(8) unsigned char state[TKS_DIALECT_STATE];
};

/*
 * Where several answers share the stream (OpenAI Realtime, ModelStreamInfer): makes the one with
 * this key current ("" : the next one that was asked for), to be called first in end(). Turns d->rs
 * and d->rec to it; false: no such answer is known, and the document tells of none.
 */
bool tks_dialect_answer(struct tks_dialect_ctx *d, const char *key);

enum tks_ask_pfield { TKS_ASK_MAX_TOKENS = 1, TKS_ASK_N };

struct tks_dialect {
	const char *name;
	/*
	 * By what its documents are known: alternatives, ended by NULL. Each is a row of terms
	 * parted by blanks, all of which must hold for the members of one document:
	 *   PATH        there, and not null          PATH?  there, null too
	 *   PATH=TEXT   a string, this one; with * at its end, one that begins so (48 bytes at
	 * most) !PATH       not there, or null PATH is as in jscan.h. Instead of a member: @aws (an
	 * AWS event stream's message), @ws (a WebSocket's), @event=TEXT (the event's name),
	 * @stream (one of a stream's documents), @path (asked for at a path of the dialect's).
	 * What answers of other services may have too must not stand alone.
	 */
	const char *const *signs;
	/* Ends of request paths that suggest it, before the query, whatever proxies put in front
	 * (one * in them stands for anything); ended by NULL. They name requests without an answer
	 * that can be read, and make them records. NULL: none. */
	const char *const *paths;
	/* JSON. A path once only. */
	const struct tks_jfield *fields;
	size_t nfields;
	void (*begin)(struct tks_dialect_ctx *d);
	void (*value)(struct tks_dialect_ctx *d, const struct tks_jvalue *v);
	/* ok: the document was well-formed. */
	void (*end)(struct tks_dialect_ctx *d, bool ok);
	/* gRPC: the methods it is spoken by ("/package.Service/Method"), ended by NULL. */
	const char *const *grpc;
	const struct tks_pfield *pfields;
	size_t npfields;
	void (*pvalue)(struct tks_dialect_ctx *d, const struct tks_pvalue *v);
	/* True if the message can only be the first one of such an answer: on a connection entered
	 * in its middle methods are not known by name. NULL: there is no telling. */
	bool (*is_first)(const void *message, size_t n);
	/* What its requests say, by the ids of enum tks_ask_pfield. NULL: nothing. */
	const struct tks_pfield *ask_pfields;
	size_t nask_pfields;
	/* Finish reasons that say that the model ended by itself, with an end-of-sequence token;
	 * ended by NULL. NULL: none is known. */
	const char *const *stops;
	bool shared; /* several answers share a stream */
	bool array_is_stream; /* an array's elements come as they are made; else it is one answer,
			       * of several prompts */
};

extern const struct tks_dialect tks_dialect_unknown;

/* --- the table --- */

/* By name; tks_dialect_unknown for any other. */
const struct tks_dialect *tks_dialect_named(const char *name);

/* By a request's path; NULL: no LLM server's. */
const struct tks_dialect *tks_dialect_of_path(const char *target);

/* The path is one of those that the dialect is spoken at. */
bool tks_dialect_at_path(const struct tks_dialect *dialect, const char *target);

/* The one spoken by that gRPC method, or NULL. */
const struct tks_dialect *tks_dialect_of_method(const char *path);

/* The one whose answers begin with such a gRPC message, or NULL. */
const struct tks_dialect *tks_dialect_of_first(const void *message, size_t n);

/* Its compiled fields, made at the first call and kept for good. NULL without memory, or without
 * fields. */
const struct tks_jschema *tks_dialect_schema(const struct tks_dialect *dialect);

/* The finish is one of the dialect's natural stops. */
bool tks_dialect_stops(const struct tks_dialect *dialect, const char *finish);

/* --- looking at a document --- */

struct tks_shape;

enum tks_shape_kind { TKS_SHAPE_PLAIN = 0, TKS_SHAPE_AWS = 1, TKS_SHAPE_WS = 2 };

/* NULL without memory. */
struct tks_shape *tks_shape_new(struct tks_mem *mem);
void tks_shape_free(struct tks_mem *mem, struct tks_shape *s);

/* A new document. */
void tks_shape_begin(struct tks_shape *s);
enum tks_jstatus tks_shape_feed(struct tks_shape *s, const void *data, size_t n, size_t *used);

/* What stands around a document. */
struct tks_shape_place {
	enum tks_shape_kind kind;
	const char *event, *target; /* "" : none, not seen */
	bool stream; /* it is one of a stream's, not the body or an element of an array */
};

/* The dialect whose signs are there so far, or NULL. */
const struct tks_dialect *tks_shape_dialect(const struct tks_shape *s,
					    const struct tks_shape_place *place);

/* It has what errors have: an `error` that is not null, FastAPI's `detail`, object "error". */
bool tks_shape_is_error(const struct tks_shape *s);

/* --- for dialects --- */

/* Copies a kept string, cut to size and always terminated; false when it was cut. */
bool tks_jvalue_copy(const struct tks_jvalue *v, char *out, size_t size);

/* Copies a kept string that is not empty, unless out has one already; flags the record `truncated`
 * when it was cut. */
void tks_dialect_keep(struct tks_dialect_ctx *d, const struct tks_jvalue *v, char *out,
		      size_t size);

/* A string, or a number as text. */
void tks_jvalue_text(const struct tks_jvalue *v, char *out, size_t size);

/* True for that string. */
bool tks_jvalue_is(const struct tks_jvalue *v, const char *text);

/* Copies a string of protobuf, cut to size and always terminated; other types leave out as it is.
 */
void tks_pvalue_copy(const struct tks_pvalue *v, char *out, size_t size);

/* A number of tokens; TKS_NULL for what is no number, or one that no answer can have. */
int64_t tks_jvalue_count(const struct tks_jvalue *v);

/*
 * What one document says, for dialects whose frames are of one choice: gathered in value(), told in
 * end(). Zeroed by tks_said_begin.
 */
struct tks_said {
	struct tks_choice_facts choice; /* index, tokens, counter, finish, finish_is_token are for
					 * the dialect to set; token: for a frame that counts as one
					 * without any text */
	bool visible, reasoning; /* text of that kind is there */
	struct tks_usage usage; /* totals of the answer; the last ones count */
	bool is_error;
	char error_kind[48], error_code[24];
};

void tks_said_begin(struct tks_said *s);

/* Members that mean the same in most dialects, as ids of a field table; a dialect's own ids begin
 * at TKS_SAID_OWN. */
enum tks_said_field {
	TKS_SAID_ID = 1, /* of the response */
	TKS_SAID_MODEL,
	TKS_SAID_TEXT, /* visible; also a piece of a tool call */
	TKS_SAID_REASONING,
	TKS_SAID_FINISH, /* null and "" are none */
	TKS_SAID_INDEX, /* of the choice */
	TKS_SAID_IDS, /* an array with an element for each token of the frame */
	TKS_SAID_COUNTER, /* tokens of the choice so far */
	TKS_SAID_OUT, /* totals */
	TKS_SAID_IN,
	TKS_SAID_CACHED,
	TKS_SAID_REASONED,
	TKS_SAID_ERROR, /* there and not null: it is one */
	TKS_SAID_ERROR_KIND,
	TKS_SAID_ERROR_CODE,
	TKS_SAID_OWN = 32,
};

/* Takes the value of such a field. Strings must be kept, but for the texts. */
void tks_said_value(struct tks_dialect_ctx *d, struct tks_said *s, const struct tks_jvalue *v);

/* The facts go to the answer. A body in one piece proves no token frames: only its totals, finish
 * and error count. */
void tks_said_tell(struct tks_dialect_ctx *d, const struct tks_said *s);

#endif
