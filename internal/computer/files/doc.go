// Package files handles requests about a computer's files: list, read, put, remove to the
// trash and put back, move, and bring in a folder or a repository. What a put replaces and
// what a removal removes goes to the trash; documents whose files are affected are brought
// up to date before and after.
package files
