// Package netfix reads the files in which the tool i40e_net_fix remembers pods.
//
// [Parse] reads a [File] of that tool, [ReadDir] all files of a directory. The files do not tell what an interface was on.
// Package capture decides what becomes of them.
package netfix
