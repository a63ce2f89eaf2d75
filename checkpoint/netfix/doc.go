// Package netfix writes checkpoints of the pods that i40e_net_fix remembers, from its files and from what is there of them.
package netfix
