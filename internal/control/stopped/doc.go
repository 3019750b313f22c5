// Package stopped serves a page in the console's place while the stored data can't be
// opened.
package stopped
