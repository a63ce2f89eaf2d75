// Package install puts relink's programs and the files beside them in their places on a node, remembers what it has put
// there, and takes away that and nothing else. The decisions are pure functions over what there is.
package install
