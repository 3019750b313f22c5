// Package stopped is what is served in the console's place while what is stored can't
// be opened.
package stopped
