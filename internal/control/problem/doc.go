// Package problem describes refusals and failures in HTTP: as RFC 9457 problem documents
// with the code, the hint and the field that our errors have.
package problem
