// Package collect removes the chunks of large files that nothing needs any more.
//
// What holds of it:
//
//   - What is needed is found from the history, not counted: every commit that a ref
//     reaches, every plan that is kept and every entry of the trash. Where one of these
//     can't be read nothing is removed, for nobody knows what it needs.
//   - A chunk that was stored or found lately stays, whether it is needed or not.
//   - What is removed is decided and removed while nothing changes, a little at a time, so
//     that nobody waits for long.
//
// It never removes an object of git's.
package collect
