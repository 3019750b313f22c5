// Package inward answers agent programs in boxes in the wire formats of the vendors: Anthropic's
// Messages, OpenAI's Chat Completions and Responses. It translates between them and the contract's
// turns, which the gateway answers for the scope that the host has decided. No vendor's key and no
// choice of a model passes here: a program has a token that is good for its box alone.
package inward
