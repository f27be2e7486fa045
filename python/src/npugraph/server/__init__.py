# SPDX-License-Identifier: Apache-2.0
"""npugraph-server: OpenAI's HTTP API in front of npugraphd. docs/openai.md says what is supported."""
