// Package eval measures how well a model does tasks in this computer: `choir eval`. A task is a
// folder with a repository, a prompt and a check that the agent never sees. docs/eval.md describes
// tasks, cassettes and what the table says.
package eval
