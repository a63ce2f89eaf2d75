// Package cniplugin is what relink's CNI plugins share: how they start, how they read a configuration, how they fail, and how their
// results become an interface.
//
// Main is the main function of a plugin. It checks the network's name and the version, and calls one of the plugin's functions.
//
// A plugin has a struct for its keys. Config are the keys of all interface plugins, and Network in it are those of every plugin.
// An ADD, a CHECK and a STATUS read the configuration in two steps. Keys.Examine goes through the keys once and names those that
// are misspelt, there twice, or another plugin's. Then Decode or DecodeAll fills the struct, and an error names the key, its value
// and what is wanted. Config.Problems says which values can't be used. What is in "ipam" stays as it is written (IPAMSection), for
// the IPAM plugin. A DEL, a GC and a CHECK read no more than DelConfig has: a wrong key elsewhere must not keep a pod from being
// detached. ParseArgs reads CNI_ARGS.
//
// Each error has a code of the CNI specification: ConfigError and EnvError for what somebody wrote, Error for the rest. Wrap and
// Join keep the code. Nearest guesses what a misspelt name means.
//
// Addresses and Routes make of a CNI result what an interface carries. Undo takes back what a failed ADD has done.
package cniplugin
