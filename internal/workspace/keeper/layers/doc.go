// Package layers checks commits out for boxes, which see them through an overlay. A
// snapshot is a chain of layers: a whole checkout, and over it what changed since, each as
// overlayfs has it: files, links and directories that are new or changed, and a whiteout (a
// character device 0/0) for what was removed. So a snapshot costs what changed since the
// one before it. What two layers have in common is hard-linked between them, never with the
// live tree.
//
// It guarantees:
//
//   - A layer never changes once it has its name, and stays as long as the host names it.
//   - A layer is valid only with its mark, which is written when the layer is complete.
//   - Layers can be made again at any time, so nothing is synced; instead a layer's mark
//     names the boot of the machine that wrote it, and after another boot it is compared
//     with its trees before it is used.
//   - No chain is longer than the host mounts.
//
// It never reads or writes the live tree, and decides neither which commit is shown nor who
// still needs a layer.
package layers
