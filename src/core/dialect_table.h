/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The table of dialects: a row each. Where the signs of two are there, the first row wins.
 */
#ifndef TKS_DIALECT_TABLE_H
#define TKS_DIALECT_TABLE_H

#include "dialect.h"

/* clang-format off */
#define TKS_DIALECTS(X)                                                                            \
	X(realtime)                                                                                \
	X(bedrock_converse)                                                                        \
	X(bedrock_invoke)                                                                          \
	X(openai_chat)                                                                             \
	X(openai_completions)                                                                      \
	X(responses)                                                                               \
	X(anthropic)                                                                               \
	X(gemini)                                                                                  \
	X(ollama_chat)                                                                             \
	X(ollama_generate)                                                                         \
	X(sglang)                                                                                  \
	X(lmdeploy)                                                                                \
	X(llamacpp)                                                                                \
	X(tgi)                                                                                     \
	X(cohere_v2)                                                                               \
	X(cohere_v1)                                                                               \
	X(triton)                                                                                  \
	X(triton_grpc)                                                                             \
	X(engine_sglang)                                                                           \
	X(engine_vllm)                                                                             \
	X(engine_trtllm)
/* clang-format on */

size_t tks_dialect_count(void);
const struct tks_dialect *tks_dialect_at(size_t i);

#endif
