// Package webtools is what models and people are told of the web's tools: what they take, what a person is shown of a request,
// and what a page, a search or a service says, marked so that none of it passes for what the host says.
package webtools
