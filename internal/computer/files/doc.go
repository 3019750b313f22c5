// Package files is what people and programs do to a computer's files by the API: list,
// read, put, remove to the trash and bring back, move, and bring in a folder or a
// repository. What a put replaces and a removal takes goes to the trash; documents whose
// files are touched are settled around it.
package files
