// Package cniplugin is what the CNI plugins share: configuration, results, the IPAM delegate, undo and error codes.
package cniplugin
